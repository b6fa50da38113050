// Threads of one process that wait for each other: for locks that name their owners, and for locks that runtimes know.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "daemon/detect/watch/lock_watch.h"
#include "daemon/detect/watch/runtime_cycles.h"
#include "daemon/detect/watch/thread_detector.h"
#include "daemon/detect/watch/thread_watch.h"
#include "daemon/detect/watch/watched_process.h"

namespace stackd {

class DeadlockDetector : public ThreadDetector {
 public:
  DeadlockDetector(const WatchedProcess* process, const ThreadWatch* threads) : process_(*process), threads_(*threads) {}

  void EndThoseThatMoved() override;
  bool NeedsLocks(int64_t) override { return IsConfirming(); }
  void Look(const ThreadLook& look) override;
  bool IsConfirming() override { return certain_.HasCandidates() || runtime_cycles_.HasUnproven(); }
  void EndSuspicions() override;
  // Some deadlock lasts that the words of locks tell.
  bool HasFound() const { return !known_.empty(); }

 private:
  struct Known {
    Deadlock deadlock;
    int64_t found_ns;
    SharedSuspicion suspicion;
  };
  // Cycles of waits for locks of Java or Python, which a capture has to prove.
  void LookAtRuntimes(const LockView& view, int64_t now_ns);

  const WatchedProcess& process_;
  const ThreadWatch& threads_;
  DeadlockWatch certain_;
  std::map<std::string, Known> known_;  // by key
  RuntimeCycles runtime_cycles_;
};

}  // namespace stackd
