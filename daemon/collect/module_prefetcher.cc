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

ModulePrefetcher::ModulePrefetcher() : thread_([this] { Run(); }) {}

ModulePrefetcher::~ModulePrefetcher() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void ModulePrefetcher::Add(std::weak_ptr<CrashCapturer> process) {
  std::lock_guard lock(mutex_);
  tasks_.push_back({std::move(process), MonotonicNs() + kDelayNs});
  changed_.notify_one();
}

void ModulePrefetcher::AddUrgent(std::weak_ptr<CrashCapturer> process) {
  std::lock_guard lock(mutex_);
  urgent_.push_back(std::move(process));
  changed_.notify_one();
}

void ModulePrefetcher::Run() {
  std::unique_lock lock(mutex_);
  int64_t rests_until_ns = 0;
  while (!stopping_) {
    std::weak_ptr<CrashCapturer> next;
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
      next = std::move(tasks_.front().process);
      tasks_.pop_front();
    }
    lock.unlock();
    if (auto process = next.lock()) {
      const LoopWatch::Turn turn(Loop::kModules);
      process->PrefetchModules();
      DeferClose(std::move(process));
    }
    lock.lock();
    rests_until_ns = MonotonicNs() + kPauseNs;
  }
}

}  // namespace stackd
