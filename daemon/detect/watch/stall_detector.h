// A process in which no thread runs, because of a lock whose owner should have done something by now.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "daemon/analyze/waits/wait_end.h"
#include "daemon/detect/watch/deadlock_detector.h"
#include "daemon/detect/watch/freeze_probe.h"
#include "daemon/detect/watch/thread_detector.h"
#include "daemon/detect/watch/thread_watch.h"
#include "daemon/detect/watch/watched_process.h"

namespace stackd {

class StallDetector : public ThreadDetector {
 public:
  // Leaves the process alone as long as `deadlocks` has found something.
  StallDetector(const WatchedProcess* process, const ThreadWatch* threads, const DeadlockDetector* deadlocks,
                FreezeProbe* freeze)
      : process_(*process), threads_(*threads), deadlocks_(*deadlocks), freeze_(*freeze) {}

  bool NeedsLocks(int64_t now_ns) override;
  void Look(const ThreadLook& look) override;
  bool IsConfirming() override { return false; }
  void EndSuspicions() override { EndSuspicion(&suspicion_); }

 private:
  bool StandsStill(int64_t now_ns) const;
  // Finds what ends the wait of each thread that sleeps; nullopt if that cannot be known now.
  std::optional<std::map<int32_t, WaitEnd>> WaitEnds(const LockView& view) const;
  // Finds the lock whose owner should have done something by now; nullptr if there is none.
  const LockWait* FindStuck(const LockView& view, const std::map<int32_t, WaitEnd>& ends) const;

  const WatchedProcess& process_;
  const ThreadWatch& threads_;
  const DeadlockDetector& deadlocks_;
  FreezeProbe& freeze_;
  bool is_judged_ = false;  // the stall that lasts
  SharedSuspicion suspicion_;
};

}  // namespace stackd
