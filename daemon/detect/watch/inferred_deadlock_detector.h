// Threads of one process that wait for each other for locks that keep no owner: only their stacks tell.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "daemon/detect/watch/deadlock_detector.h"
#include "daemon/detect/watch/thread_detector.h"
#include "daemon/detect/watch/thread_watch.h"
#include "daemon/detect/watch/watched_process.h"

namespace stackd {

class InferredDeadlockDetector : public ThreadDetector {
 public:
  // Leaves the process alone as long as `certain` has found something.
  InferredDeadlockDetector(const WatchedProcess* process, const ThreadWatch* threads, const DeadlockDetector* certain)
      : process_(*process), threads_(*threads), certain_(*certain) {}

  bool NeedsLocks(int64_t) override { return IsConfirming(); }
  void Look(const ThreadLook& look) override;
  bool IsConfirming() override { return !is_judged_; }
  void EndSuspicions() override { EndSuspicion(&suspicion_); }

 private:
  using Wait = std::pair<const int32_t, uint64_t>;  // a thread, and the word that it waits on
  void EndIfItMoved();
  // Asks whether a thread waits in a function that such a cycle may go through; nullopt: it did not say.
  std::optional<bool> WaitsForWhatKeepsNoOwner(int32_t tid);
  // Asks for the cycle of a thread that waits so.
  void ReportCycle(const Wait& wait, const std::set<int32_t>& still, int64_t now_ns);

  const WatchedProcess& process_;
  const ThreadWatch& threads_;
  const DeadlockDetector& certain_;
  // The waits that only stacks tell of, since when they are the same, and whether these were judged.
  std::map<int32_t, uint64_t> waits_;
  int64_t since_ns_ = 0;
  bool is_judged_ = true;
  // How often threads of each wait were asked: looking at them has them run, and look like new.
  std::map<std::pair<int32_t, uint64_t>, int> tries_;
  std::optional<Wait> suspected_;
  SharedSuspicion suspicion_;
};

}  // namespace stackd
