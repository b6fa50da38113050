// Loads the modules of processes before a dump is asked for.
//
// A process that has ended shows no maps and opens no files. One that dies without being held, since its own handler ends
// it or it is killed in the middle, would have addresses and no names.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "daemon/collect/crash_capturer.h"

namespace stackd {

// Thread-safe.
class ModulePrefetcher {
 public:
  ModulePrefetcher();
  ~ModulePrefetcher();

  // They do not block. In a second: a process that ends at once is spared.
  void Add(std::weak_ptr<CrashCapturer> process);
  // Now: one of its threads waits for that.
  void AddUrgent(std::weak_ptr<CrashCapturer> process);

 private:
  struct Task {
    std::weak_ptr<CrashCapturer> process;
    int64_t due_ns;
  };

  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::deque<std::weak_ptr<CrashCapturer>> urgent_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace stackd
