#include "daemon/collect/preloader.h"

#include <chrono>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/collect/destroy_elsewhere.h"

namespace stackd {
namespace {

constexpr int64_t kDelayNs = kNsPerSecond;
// Between two processes, for all that register at once: of a daemon that was started again.
constexpr std::chrono::milliseconds kPause(2);

}  // namespace

Preloader::Preloader() : thread_([this] { Run(); }) {}

Preloader::~Preloader() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Preloader::Add(std::weak_ptr<Agent> agent) {
  std::lock_guard lock(mutex_);
  tasks_.push_back({std::move(agent), MonotonicNs() + kDelayNs});
  changed_.notify_one();
}

void Preloader::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (stopping_) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    changed_.wait_for(lock, std::chrono::nanoseconds(task.due_ns - MonotonicNs()), [this] { return stopping_; });
    changed_.wait_for(lock, kPause, [this] { return stopping_; });
    if (stopping_) return;
    lock.unlock();
    if (auto agent = task.agent.lock()) {
      agent->LoadModulesEarly();
      DestroyElsewhere(std::move(agent));
    }
    lock.lock();
  }
}

}  // namespace stackd
