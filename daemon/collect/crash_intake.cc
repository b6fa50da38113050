#include "daemon/collect/crash_intake.h"

#include <string>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/base/loop_watch.h"
#include "daemon/collect/deferred_close.h"

namespace stackd {
namespace {

// A process whose threads do not answer occupies one of them for half a second.
constexpr int kCapturers = 4;
// More crashes than this, or one for longer than this, do not wait for the other threads of some process.
constexpr size_t kMaxPatientlyWaiting = 16;
constexpr int64_t kMaxPatientWaitNs = 200 * kNsPerMs;
// What a crash has for its modules and the other threads, of the 2 s that its process is held for.
constexpr int64_t kCaptureNs = kNsPerSecond / 2;
// The part of that for modules, where other crashes wait. A process that has not said by then what it has mapped has its
// next turn after the others. Most likely one of them has said the same.
constexpr int64_t kHurriedLoadNs = 50 * kNsPerMs;
// Where many crashes wait the processors are busy, and agents answer late. Without files a crash has no names.
constexpr int64_t kHurriedModulesNs = 3 * kNsPerSecond / 2;

}  // namespace

CrashIntake::~CrashIntake() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    to_take_changed_.notify_all();
    to_capture_changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void CrashIntake::Start(CrashHandler handler) {
  handler_ = std::move(handler);
  threads_.emplace_back([this] { RunTaking(); });
  for (int i = 0; i < kCapturers; i++) threads_.emplace_back([this] { RunCapturing(); });
}

void CrashIntake::Look(std::shared_ptr<CrashCapturer> crash, bool ended) {
  std::lock_guard lock(mutex_);
  if (!ended && !said_.insert(crash.get()).second) return;
  to_take_.push_back({std::move(crash), ended, MonotonicNs()});
  to_take_changed_.notify_one();
}

void CrashIntake::OnCrash(std::shared_ptr<CrashCapturer> crash) { Look(std::move(crash), /*ended=*/false); }

void CrashIntake::OnEnded(std::shared_ptr<CrashCapturer> crash) {
  ended_count_++;
  Look(std::move(crash), /*ended=*/true);
}

bool CrashIntake::InAHurry() const {
  std::lock_guard lock(mutex_);
  if (to_capture_.empty()) return false;
  return to_capture_.size() > kMaxPatientlyWaiting || MonotonicNs() - to_capture_.front().since_ns > kMaxPatientWaitNs;
}

void CrashIntake::Close(Case done) {
  if (done.ended) ended_count_--;
  // Its files may be those of a process that has ended meanwhile.
  DeferClose(std::move(done.crash));
}

bool CrashIntake::TakeOrClose(Case* next) {
  const LoopWatch::Turn turn(Loop::kCrashes);
  const bool crashed = next->crash->TakeCrash();
  if (!crashed) Close(std::move(*next));
  return crashed;
}

void CrashIntake::RunTaking() {
  std::unique_lock lock(mutex_);
  for (;;) {
    to_take_changed_.wait(lock, [this] { return stopping_ || !to_take_.empty(); });
    if (stopping_) return;
    Case next = std::move(to_take_.front());
    to_take_.pop_front();
    // Before the ring is looked at: what the process says from now on is to be looked at again.
    if (!next.ended) said_.erase(next.crash.get());
    lock.unlock();
    bool crashed = TakeOrClose(&next);
    lock.lock();
    if (!crashed) continue;
    to_capture_.push_back(std::move(next));
    to_capture_changed_.notify_one();
  }
}

void CrashIntake::RunCapturing() {
  std::unique_lock lock(mutex_);
  for (;;) {
    to_capture_changed_.wait(lock, [this] { return stopping_ || !to_capture_.empty(); });
    if (stopping_) return;
    Case next = std::move(to_capture_.front());
    to_capture_.pop_front();
    lock.unlock();
    const LoopWatch::Turn turn(Loop::kCrashCaptures);
    const int64_t begin_ns = MonotonicNs();
    const bool loaded = next.crash->LoadModulesOfCrash(begin_ns + (InAHurry() ? kHurriedLoadNs : kCaptureNs));
    if (!loaded && MonotonicNs() - next.since_ns < (InAHurry() ? kHurriedModulesNs : kCaptureNs)) {
      lock.lock();
      to_capture_.push_back(std::move(next));
      continue;
    }
    auto capture = next.crash->CaptureCrash(begin_ns + kCaptureNs, [this] { return InAHurry(); });
    if (capture != nullptr) handler_(std::move(capture), [&] { next.crash->ReleaseCrash(); });
    Close(std::move(next));
    lock.lock();
  }
}

}  // namespace stackd
