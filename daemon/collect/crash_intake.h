// Takes the crashes of all processes out of their rings and hands them on, in steps that do not wait for each other:
//
//     take     one thread     out of the ring, and the process knows (TAKEN): microseconds each
//     capture  four threads   modules, the other threads of the process; then the handler stores it (STORED)
//
// What a process wrote to a file instead is looked at when both are done with it (crashes/spool_intake.h).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <vector>

#include "daemon/collect/crash_capturer.h"
#include "daemon/crashes/crash_handler.h"

namespace stackd {

// Thread-safe.
class CrashIntake {
 public:
  CrashIntake() = default;
  ~CrashIntake();

  // The process says that it crashed, or its connection has ended. They do not block. What comes before Start waits.
  void OnCrash(std::shared_ptr<CrashCapturer> crash);
  void OnEnded(std::shared_ptr<CrashCapturer> crash);
  // Processes that have ended and that the desk is not done with.
  size_t ended_count() const { return ended_count_.load(); }

  // So many wait, or one for so long, that nothing but the crashed threads themselves can be seen to.
  bool InAHurry() const;

  // Once. `handler` is called on four threads.
  void Start(CrashHandler handler);

 private:
  struct Case {
    std::shared_ptr<CrashCapturer> crash;
    bool ended;
    int64_t since_ns;
  };

  void Look(std::shared_ptr<CrashCapturer> crash, bool ended);
  void RunTaking();
  void RunCapturing();
  // True if there is a crash to capture; else it is closed.
  bool TakeOrClose(Case* next);
  void Close(Case done);

  CrashHandler handler_;

  mutable std::mutex mutex_;
  std::condition_variable to_take_changed_;
  std::condition_variable to_capture_changed_;
  std::deque<Case> to_take_;
  // What of to_take_ has not ended: a process that says again and again that it crashed is in there once.
  std::unordered_set<const CrashCapturer*> said_;
  std::deque<Case> to_capture_;
  bool stopping_ = false;

  std::atomic<size_t> ended_count_{0};
  std::vector<std::thread> threads_;
};

}  // namespace stackd
