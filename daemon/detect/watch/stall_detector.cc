#include "daemon/detect/watch/stall_detector.h"

#include <sys/syscall.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/detect/watch/words.h"

namespace stackd {
namespace {

// Whether the thread waits for a signal handler, which hardly brings work.
bool IsInPause(const ThreadWatch::Thread& thread) {
  return thread.wait && thread.wait->call &&
         (thread.wait->call->number == SYS_pause || thread.wait->call->number == SYS_rt_sigsuspend);
}

// The last lock of the chain of owners that begins with `lock`.
const LockWait& EndOfChain(const LockWait& lock, const LockView& view) {
  const LockWait* last = &lock;
  for (size_t steps = 0; steps <= view.locks.size() && !last->owner_is_gone; ++steps) {
    const auto next = std::ranges::find(view.locks, last->owner_tid, &LockWait::waiter_tid);
    if (next == view.locks.end()) break;
    last = &*next;
  }
  return *last;
}

}  // namespace

bool StallDetector::StandsStill(int64_t now_ns) const {
  const Rule* rule = process_.RuleFor(RuleTrigger::kStall);
  return rule != nullptr && now_ns - threads_.StillSinceNs() >= rule->after_ns;
}

bool StallDetector::NeedsLocks(int64_t now_ns) {
  if (StandsStill(now_ns)) return !is_judged_;
  is_judged_ = false;
  EndSuspicions();
  return false;
}

std::optional<std::map<int32_t, WaitEnd>> StallDetector::WaitEnds(const LockView& view) const {
  std::vector<int32_t> numbers;
  for (const auto& [tid, thread] : threads_.threads()) {
    const int32_t fd = thread.wait && thread.wait->call ? DecidingFd(*thread.wait->call) : -1;
    if (fd >= 0) numbers.push_back(fd);
  }
  std::vector<WaitedFd> fds;
  if (!numbers.empty()) {
    auto described = process_.probe.DescribeFds(process_.id(), numbers, FreezeProbe::kTimeoutNs);
    if (!described) return std::nullopt;
    fds = std::move(*described);
  }
  std::map<int32_t, WaitEnd> ends;
  for (const auto& [tid, thread] : threads_.threads()) {
    if (!thread.wait) continue;
    // A thread that is in no call waits for a page.
    const WaitEnd end = thread.wait->call ? WaitEndOf(*thread.wait->call, fds) : WaitEnd::kOwed;
    ends.emplace(tid, view.shared_waiters.contains(tid) ? WaitEnd::kOutside : end);
  }
  return ends;
}

const LockWait* StallDetector::FindStuck(const LockView& view, const std::map<int32_t, WaitEnd>& ends) const {
  // Work from outside may come through such a thread, and reach the one that has the lock.
  const bool gets_work = std::ranges::any_of(ends, [this](const auto& end) {
    return end.second == WaitEnd::kOutside && !IsInPause(threads_.threads().at(end.first));
  });
  for (const LockWait& lock : view.locks) {
    const LockWait& last = EndOfChain(lock, view);
    const auto end = ends.find(last.owner_tid);
    const bool is_cycle = std::ranges::find(view.locks, last.owner_tid, &LockWait::waiter_tid) != view.locks.end();
    if (end == ends.end() || end->second == WaitEnd::kOwed || is_cycle) return &last;
    if (end->second == WaitEnd::kInside && !gets_work) return &last;
  }
  return nullptr;
}

void StallDetector::Look(const ThreadLook& look) {
  if (is_judged_ || !StandsStill(look.now_ns)) return;
  const auto sleeps = [this](const auto& entry) {
    return entry.second.wait.has_value() || entry.first == threads_.helper_tid();
  };
  // Threads that nothing is known of may want to run, and get no core.
  if (!std::ranges::all_of(threads_.threads(), sleeps)) return;
  // Until some thread runs, the answer stays.
  is_judged_ = true;
  if (deadlocks_.HasFound() || look.locks.locks.empty()) return;
  const auto ends = WaitEnds(look.locks);
  is_judged_ = ends.has_value();
  const LockWait* found = ends ? FindStuck(look.locks, *ends) : nullptr;
  if (found == nullptr) return;
  const Frozen frozen = process_.IsStopped(0) ? Frozen::kYes : freeze_.Ask(look.now_ns, [] { return true; });
  is_judged_ = frozen != Frozen::kNotKnown;
  if (frozen == Frozen::kYes) ++process_.counters.stopped;
  if (frozen != Frozen::kNo) return;
  ++process_.counters.stalls;
  const int64_t duration_ns = look.now_ns - threads_.StillSinceNs();
  HangCapture hang{.cause = HangCause::kNoProgress,
                   .explanation = "no thread has run for " + DurationInWords(duration_ns) + ", and " + InWords(*found),
                   .tid = found->owner_tid != 0 && !found->owner_is_gone ? found->owner_tid : found->waiter_tid,
                   .duration_ns = duration_ns};
  suspicion_ = process_.Suspect(std::move(hang), "no_progress", RuleTrigger::kStall, look.now_ns);
}

}  // namespace stackd
