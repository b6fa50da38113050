// Threads of one process that use a core for long, stay in the same functions, and keep others from a lock meanwhile.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/detect/watch/thread_detector.h"
#include "daemon/detect/watch/thread_watch.h"
#include "daemon/detect/watch/watched_process.h"

namespace stackd {

class SpinDetector : public ThreadDetector {
 public:
  SpinDetector(const WatchedProcess* process, const ThreadWatch* threads) : process_(*process), threads_(*threads) {}

  bool NeedsLocks(int64_t now_ns) override;
  // Takes one sample of one thread at most.
  void Look(const ThreadLook& look) override;
  bool IsConfirming() override;
  void EndSuspicions() override {}

 private:
  struct Suspect {
    std::vector<std::string> functions;
    int samples = 0;
    int64_t rests_until_ns = 0;  // it was judged: left alone until then
  };
  void Report(int32_t tid, const std::string& function, const LockWait& kept_waiting, int64_t now_ns) const;

  const WatchedProcess& process_;
  const ThreadWatch& threads_;
  std::map<int32_t, Suspect> suspects_;
};

}  // namespace stackd
