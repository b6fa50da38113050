// Threads for what blocks: started when needed, up to a limit.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace stackd {

class WorkThreads {
 public:
  explicit WorkThreads(size_t max_threads) : max_threads_(max_threads) {}
  // Waits for all work.
  ~WorkThreads();

  // Never waits. False when all threads but `kept_free` are busy, and where no more can be made: `work` is not done.
  bool Do(std::function<void()> work, size_t kept_free = 0);

 private:
  void Run();

  const size_t max_threads_;
  std::mutex mutex_;
  std::condition_variable has_work_;
  std::deque<std::function<void()>> work_;
  size_t idle_ = 0;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace stackd
