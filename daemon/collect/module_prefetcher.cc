#include "daemon/collect/module_prefetcher.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/base/loop_watch.h"
#include "daemon/collect/deferred_close.h"

namespace stackd {
namespace {

constexpr int64_t kDelayNs = kNsPerSecond;
// Between two processes, for all that register at once: of a daemon that was started again.
constexpr int64_t kPauseNs = 2 * kNsPerMs;

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

void Preloader::AddUrgent(std::weak_ptr<Agent> agent) {
  std::lock_guard lock(mutex_);
  urgent_.push_back(std::move(agent));
  changed_.notify_one();
}

void Preloader::Run() {
  std::unique_lock lock(mutex_);
  int64_t rests_until_ns = 0;
  while (!stopping_) {
    std::weak_ptr<Agent> next;
    if (!urgent_.empty()) {
      next = std::move(urgent_.front());
      urgent_.pop_front();
    } else if (tasks_.empty()) {
      changed_.wait(lock);
      continue;
    } else if (int64_t wait_ns = std::max(tasks_.front().due_ns, rests_until_ns) - MonotonicNs(); wait_ns > 0) {
      changed_.wait_for(lock, std::chrono::nanoseconds(wait_ns));
      continue;
    } else {
      next = std::move(tasks_.front().agent);
      tasks_.pop_front();
    }
    lock.unlock();
    if (auto agent = next.lock()) {
      const LoopWatch::Turn turn(Loop::kModules);
      agent->LoadModulesEarly();
      DestroyElsewhere(std::move(agent));
    }
    lock.lock();
    rests_until_ns = MonotonicNs() + kPauseNs;
  }
}

}  // namespace stackd
