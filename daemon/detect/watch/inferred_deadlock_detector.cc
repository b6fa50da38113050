#include "daemon/detect/watch/inferred_deadlock_detector.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

// Waits for what keeps no owner are looked into after this time, in so many threads.
constexpr int64_t kInferNs = 2 * kNsPerSecond;
constexpr int kMaxAsked = 4;
constexpr int kMaxTries = 3;

}  // namespace

std::optional<bool> InferredDeadlockDetector::WaitsForWhatKeepsNoOwner(int32_t tid) {
  // Functions of initializers (not FnOnce::call_once, which begins each thread of Rust's) and of locks.
  constexpr std::string_view kFunctions[] = {"pthread_once",        "cxa_guard_acquire", "std::call_once",
                                             "::Once::call",        "::Once>::call",     "lll_lock_wait_private",
                                             "::lock_contended",    "::read_contended",  "::write_contended",
                                             "RawMutex::lock_slow", "RawRwLock::lock_"};
  const auto functions = process_.probe.FunctionsOf(process_.id(), tid);
  if (!functions) return std::nullopt;
  return std::ranges::any_of(*functions, [&](const std::string& function) {
    return std::ranges::any_of(kFunctions, [&](std::string_view name) { return function.find(name) != function.npos; });
  });
}

void InferredDeadlockDetector::EndIfItMoved() {
  if (suspicion_ == nullptr) return;
  const auto thread = threads_.threads().find(suspected_->first);
  const bool is_gone = thread == threads_.threads().end();
  const auto* now = is_gone || !thread->second.wait ? nullptr : &*thread->second.wait;
  const bool does_something_else = now != nullptr && (!now->call || WaitedFutex(*now->call) != suspected_->second);
  if (is_gone || does_something_else) EndSuspicion(&suspicion_);
}

void InferredDeadlockDetector::Look(const ThreadLook& look) {
  if (process_.RuleFor(RuleTrigger::kDeadlock) == nullptr || !look.answers) return;
  EndIfItMoved();
  if (look.locks.ownerless != waits_) {
    waits_ = look.locks.ownerless;
    since_ns_ = look.now_ns;
    is_judged_ = std::ranges::none_of(waits_, [this](const Wait& wait) { return tries_[wait] < kMaxTries; });
  }
  if (is_judged_ || look.now_ns - since_ns_ < kInferNs) return;
  is_judged_ = true;
  if (certain_.HasFound() || suspicion_ != nullptr) return;
  std::set<int32_t> still;
  for (const auto& [tid, thread] : threads_.threads()) {
    if (thread.HasWaitedSince(since_ns_)) still.insert(tid);
  }
  std::erase_if(tries_, [this](const auto& tries) { return !threads_.threads().contains(tries.first.first); });
  bool may_be = false;
  int asked = 0;
  for (const Wait& wait : waits_) {
    int& tries = tries_[wait];
    if (may_be || tries >= kMaxTries || !still.contains(wait.first) || asked++ == kMaxAsked) continue;
    const auto waits = WaitsForWhatKeepsNoOwner(wait.first);
    tries = waits ? kMaxTries : tries + 1;
    may_be = waits.value_or(false);
    if (may_be) ReportCycle(wait, still, look.now_ns);
    if (tries == kMaxTries) continue;
    is_judged_ = false;
    since_ns_ = look.now_ns;
  }
}

void InferredDeadlockDetector::ReportCycle(const Wait& wait, const std::set<int32_t>& still, int64_t now_ns) {
  const auto cycle = process_.probe.FindCycle(process_.id());
  // Another time there may be an answer.
  if (!cycle) tries_[wait] = kMaxTries - 1;
  if (!cycle || !*cycle) return;
  const auto& [explanation, tids, owner_is_unknown] = **cycle;
  if (tids.empty() || !std::ranges::all_of(tids, [&](int32_t tid) { return still.contains(tid); })) return;
  ++process_.counters.deadlocks;
  HangCapture hang{.cause = HangCause::kDeadlock,
                   .explanation = explanation + " (inferred from the stacks)",
                   .tid = tids[0],
                   .duration_ns = now_ns - since_ns_};
  suspected_.emplace(wait);
  suspicion_ = process_.Suspect(std::move(hang), "inferred " + std::to_string(tids[0]), RuleTrigger::kDeadlock, now_ns,
                                /*is_inferred=*/true);
}

}  // namespace stackd
