#include "daemon/pipeline/crash_backlog.h"

#include <chrono>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/base/loop_watch.h"
#include "daemon/modules/address_map.h"
#include "daemon/ring/managed_trace_bytes.h"

namespace stackd {
namespace {

// A storm: more than this wait, and one has just come.
constexpr size_t kCalmWaiting = 8;
constexpr int64_t kJustNowNs = 50 * kNsPerMs;
// So long, and no longer, a process may be held.
constexpr int64_t kMaxPutOffNs = 2 * kNsPerSecond;
constexpr std::chrono::milliseconds kLookAgain(10);

size_t BytesOf(const std::vector<ManagedStack>& stacks) {
  size_t bytes = stacks.capacity() * sizeof(ManagedStack);
  for (const ManagedStack& stack : stacks) {
    bytes += stack.frames.capacity() * sizeof(ManagedFrame);
    for (const ManagedFrame& frame : stack.frames) bytes += frame.function.SharedBytes() + frame.file.SharedBytes();
  }
  return bytes;
}

size_t BytesOf(const ManagedFacts& facts) {
  size_t bytes = BytesOf(facts.task_stacks);
  for (const auto& [tid, thread] : facts.threads) {
    bytes += sizeof(ManagedThread) + BytesOf(thread.stacks) + thread.jit_frames.capacity() * sizeof(JitFrame);
  }
  bytes += facts.tasks.capacity() * sizeof(ManagedTask) + facts.waits.capacity() * sizeof(ManagedWait);
  for (const ManagedTask& task : facts.tasks) {
    bytes += task.name.capacity() + task.state.capacity() + task.wait_reason.capacity() + task.created_by.capacity();
  }
  for (const ManagedWait& wait : facts.waits) bytes += wait.lock.capacity();
  for (const RuntimeReport& report : facts.reports) bytes += sizeof(report) + report.text.capacity();
  return bytes;
}

size_t BytesOf(const Capture& capture) {
  size_t bytes = sizeof(Capture) + BytesOf(capture.managed);
  for (const ThreadCapture& thread : capture.threads) {
    bytes += sizeof(ThreadCapture) + 8 * (thread.stack.masks().capacity() + thread.stack.words().capacity());
    bytes += BytesOf(thread.traces);
  }
  return bytes + capture.map->mappings().size() * sizeof(Mapping);
}

}  // namespace

CrashBacklog::CrashBacklog(int threads, std::function<void(UnfinishedCrash)> finish)
    : finish_(std::move(finish)), later_from_ns_(MonotonicNs() + kLaterNs) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

CrashBacklog::~CrashBacklog() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    stopped_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

bool CrashBacklog::Add(UnfinishedCrash crash) {
  std::lock_guard lock(mutex_);
  size_t bytes = crash.capture == nullptr ? 0 : BytesOf(*crash.capture);
  const bool keeps = bytes_ == 0 || bytes_ + bytes <= kMaxBytes;
  if (!keeps) {
    crash.capture = nullptr;
    bytes = 0;
  }
  bytes_ += bytes;
  last_added_ns_ = MonotonicNs();
  crashes_.push_back({std::move(crash), bytes, last_added_ns_});
  changed_.notify_one();
  return keeps;
}

size_t CrashBacklog::waiting() const {
  std::lock_guard lock(mutex_);
  return crashes_.size();
}

bool CrashBacklog::InAStorm() const {
  if (crashes_.size() <= kCalmWaiting) return false;
  const int64_t now_ns = MonotonicNs();
  return now_ns - last_added_ns_ < kJustNowNs && now_ns - crashes_.front().since_ns < kMaxPutOffNs;
}

void CrashBacklog::AddLater(UnfinishedCrash crash) {
  std::lock_guard lock(mutex_);
  later_.push_back(std::move(crash));
  changed_.notify_one();
}

void CrashBacklog::AwaitWork(std::unique_lock<std::mutex>& lock) {
  const auto has_work = [this] { return stopping_ || !crashes_.empty(); };
  while (!has_work()) {
    if (later_.empty()) {
      changed_.wait(lock, [&] { return has_work() || !later_.empty(); });
    } else if (const int64_t wait_ns = later_from_ns_ - MonotonicNs(); wait_ns > 0) {
      changed_.wait_for(lock, std::chrono::nanoseconds(wait_ns), has_work);
    } else {
      crashes_.push_back({std::move(later_.front()), 0, MonotonicNs()});
      later_.pop_front();
    }
  }
}

void CrashBacklog::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    AwaitWork(lock);
    while (!stopping_ && InAStorm()) stopped_.wait_for(lock, kLookAgain);
    if (stopping_) return;
    if (crashes_.empty()) continue;
    auto [crash, bytes, since_ns] = std::move(crashes_.front());
    crashes_.pop_front();
    lock.unlock();
    {
      const LoopWatch::Turn turn(Loop::kFinisher);
      finish_(std::move(crash));
    }
    lock.lock();
    bytes_ -= bytes;
  }
}

}  // namespace stackd
