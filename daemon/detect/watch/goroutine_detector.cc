#include "daemon/detect/watch/goroutine_detector.h"

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

constexpr int64_t kRestNs = 4 * kNsPerSecond;
// To see again what the last look has seen.
constexpr int64_t kConfirmNs = kNsPerSecond;
// What a goroutine costs the daemon, and the part of a core that it may take, 0.1 %.
constexpr int64_t kNsPerGoroutine = 3'000;
constexpr int64_t kLookFactor = 1000;

}  // namespace

bool GoroutineDetector::NeedsLocks(int64_t now_ns) {
  if (is_other_ || now_ns < due_ns_ || process_.RuleFor(RuleTrigger::kDeadlock) == nullptr) return false;
  // Where no thread has run, no goroutine has.
  const bool has_changed = looked_ns_ == 0 || threads_.StillSinceNs() >= looked_ns_;
  if (has_changed || IsConfirming()) LookAtGoroutines(now_ns);
  return false;
}

void GoroutineDetector::LookAtGoroutines(int64_t now_ns) {
  auto goroutines = process_.probe.ReadStuckGoroutines(process_.id());
  due_ns_ = now_ns + kRestNs;
  if (!goroutines) return;
  if (goroutines->is_go && !goroutines->has_memory && !asked_for_memory_) return AskForMemory();
  is_other_ = !goroutines->is_go || !goroutines->has_memory;
  looked_ns_ = now_ns;
  due_ns_ = now_ns + std::max(kRestNs, static_cast<int64_t>(goroutines->count) * kNsPerGoroutine * kLookFactor);
  Judge(std::move(goroutines->stuck), now_ns);
  if (IsConfirming()) due_ns_ = now_ns + kConfirmNs;
}

void GoroutineDetector::AskForMemory() {
  asked_for_memory_ = true;
  (void)process_.probe.FindCycle(process_.id());
}

void GoroutineDetector::Judge(std::vector<uint64_t> stuck, int64_t now_ns) {
  const auto is_stuck_now = [&](uint64_t id) { return std::ranges::find(stuck, id) != stuck.end(); };
  if (std::ranges::none_of(stuck_, is_stuck_now)) {
    since_ns_ = now_ns;
    EndSuspicions();
  }
  stuck_ = std::move(stuck);
  if (stuck_.empty() || suspicion_ != nullptr || now_ns - since_ns_ < kConfirmNs) return;
  ++process_.counters.deadlocks;
  const std::string count = std::to_string(stuck_.size());
  HangCapture hang{.cause = HangCause::kDeadlock,
                   .explanation = count + (stuck_.size() == 1 ? " goroutine waits" : " goroutines wait") +
                                  " for locks that no other goroutine has (inferred from the code of the others)",
                   .duration_ns = now_ns - since_ns_};
  suspicion_ = process_.Suspect(std::move(hang), "goroutines", RuleTrigger::kDeadlock, now_ns, /*is_inferred=*/true);
}

}  // namespace stackd
