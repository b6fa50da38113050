#include "daemon/access/each_second.h"

#include <chrono>
#include <utility>

namespace stackd {

EachSecond::EachSecond(std::function<void()> work) : work_(std::move(work)), thread_([this] { Run(); }) {}

EachSecond::~EachSecond() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    ended_.notify_all();
  }
  thread_.join();
}

void EachSecond::Run() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, std::chrono::seconds(1), [this] { return ending_; })) {
    lock.unlock();
    work_();
    lock.lock();
  }
}

}  // namespace stackd
