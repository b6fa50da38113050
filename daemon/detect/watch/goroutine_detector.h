// Goroutines that wait for locks which no other goroutine has. No thread tells of them: threads of Go wait for any work.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/detect/watch/thread_detector.h"
#include "daemon/detect/watch/thread_watch.h"
#include "daemon/detect/watch/watched_process.h"

namespace stackd {

class GoroutineDetector : public ThreadDetector {
 public:
  GoroutineDetector(const WatchedProcess* process, const ThreadWatch* threads) : process_(*process), threads_(*threads) {}

  // Looks at goroutines where a look is due: the locks of threads tell nothing of them.
  bool NeedsLocks(int64_t now_ns) override;
  void Look(const ThreadLook& /*look*/) override {}
  bool IsConfirming() override { return !stuck_.empty() && suspicion_ == nullptr; }
  void EndSuspicions() override { EndSuspicion(&suspicion_); }

 private:
  void LookAtGoroutines(int64_t now_ns);
  // Asks for one capture, with which the agent passes the memory of a program that it finds to be Go's.
  void AskForMemory();
  void Judge(std::vector<uint64_t> stuck, int64_t now_ns);

  const WatchedProcess& process_;
  const ThreadWatch& threads_;
  bool is_other_ = false;  // no Go program, or one whose memory may not be read
  bool asked_for_memory_ = false;
  int64_t looked_ns_ = 0;
  int64_t due_ns_ = 0;
  std::vector<uint64_t> stuck_;  // by the last look
  int64_t since_ns_ = 0;         // since when all looks have seen one of them
  SharedSuspicion suspicion_;
};

}  // namespace stackd
