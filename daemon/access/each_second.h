// Looks after something once a second, on a thread of its own.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace stackd {

class EachSecond {
 public:
  // The first time a second from now.
  explicit EachSecond(std::function<void()> work);
  // Waits for the work under way.
  ~EachSecond();

 private:
  void Run();

  const std::function<void()> work_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace stackd
