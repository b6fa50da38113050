#include "daemon/serve/guard/work_threads.h"

#include <system_error>
#include <utility>

namespace stackd {

WorkThreads::~WorkThreads() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    has_work_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

bool WorkThreads::Do(std::function<void()> work, size_t kept_free) {
  std::lock_guard lock(mutex_);
  const size_t busy = threads_.size() - idle_ + work_.size();
  if (busy + kept_free >= max_threads_) return false;
  // Work that stands in the queue has an idle thread each, which is about to take it.
  if (work_.size() >= idle_) {
    try {
      threads_.emplace_back([this] { Run(); });
    } catch (const std::system_error&) {
      return false;
    }
    ++idle_;
  }
  work_.push_back(std::move(work));
  has_work_.notify_one();
  return true;
}

void WorkThreads::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    has_work_.wait(lock, [this] { return ending_ || !work_.empty(); });
    if (work_.empty()) return;
    std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    --idle_;
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
    ++idle_;
  }
}

}  // namespace stackd
