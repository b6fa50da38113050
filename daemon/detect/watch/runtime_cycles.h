// Cycles of threads that wait for locks which runtimes know: monitors of Java, RLocks of Python.
//
// How often such a thread has run does not tell that it waits still: a monitor's waiter wakes every second to look. So a
// cycle that was seen here is a reason to ask for a capture, which proves it or not (process/confirm_waits.h).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "daemon/analyze/waits/wait_graph.h"
#include "daemon/capture/managed.h"
#include "daemon/detect/watch/lock_watch.h"
#include "daemon/detect/watch/suspicion.h"
#include "daemon/detect/watch/thread_watch.h"

namespace stackd {

class RuntimeCycles {
 public:
  struct Cycle {
    std::set<int32_t> tids;
    int64_t since_ns = 0;  // when it was seen first
    int tries = 0;         // to prove it
    SharedSuspicion suspicion;
  };

  // Finds cycles among the locks of `view` and those of runtimes (`waits`). What was suspected is over where all threads
  // of a cycle sleep and make none.
  void Look(const LockView& view, std::span<const ManagedWait> waits, const ThreadWatch& threads, int64_t now_ns);
  // Cycles that are neither proven nor given up.
  std::vector<Cycle*> Unproven();
  bool HasUnproven() { return !Unproven().empty(); }
  // Ends all: cycles are not looked for any more.
  void End();

 private:
  std::map<std::string, Cycle> cycles_;  // by key
};

}  // namespace stackd
