#include "daemon/collect/confirm_waits.h"

#include <algorithm>

#include "daemon/collect/waited_on.h"

namespace stackd {
namespace {

std::unordered_map<int32_t, uint64_t> RunCounts(std::span<const ThreadMotion> motions) {
  std::unordered_map<int32_t, uint64_t> counts;
  for (const ThreadMotion& motion : motions) counts.emplace(motion.tid, motion.run_count);
  return counts;
}

bool HasRunBetween(int32_t tid, const SleepLook& look) {
  auto before = look.runs_before.find(tid);
  auto after = look.runs_after.find(tid);
  if (before == look.runs_before.end() || after == look.runs_after.end()) return false;
  return before->second != after->second;
}

}  // namespace

std::vector<ThreadCall> CallsInCircles(std::span<const ThreadCall> calls, std::span<const FutexWord> words) {
  struct Waiter {
    const ThreadCall* thread;
    int32_t holder;
    size_t walk = 0;  // that met it first
  };
  std::unordered_map<int32_t, Waiter> waiters;
  for (const ThreadCall& thread : calls) {
    const auto futex = WaitedFutex(thread.call);
    if (!futex) continue;
    auto word = std::ranges::lower_bound(words, *futex, {}, &FutexWord::avma);
    if (word == words.end() || word->avma != *futex) continue;
    waiters.emplace(thread.tid, Waiter{&thread, HolderOf(*word)});
  }
  std::vector<ThreadCall> in_circles;
  size_t walk = 0;
  for (auto& [start, first] : waiters) {
    ++walk;
    auto at = waiters.find(start);
    while (at != waiters.end() && at->second.walk == 0) {
      at->second.walk = walk;
      at = waiters.find(at->second.holder);
    }
    // Only a walk that comes back to its own steps has closed a circle.
    if (at == waiters.end() || at->second.walk != walk) continue;
    const int32_t closed_by = at->first;
    do {
      in_circles.push_back(*at->second.thread);
      at = waiters.find(at->second.holder);
    } while (at->first != closed_by);
  }
  return in_circles;
}

SleepLook::SleepLook(std::span<const ThreadMotion> before, std::span<const ThreadWait> sample,
                     std::span<const ThreadMotion> after)
    : runs_before(RunCounts(before)), runs_after(RunCounts(after)) {
  for (const ThreadWait& wait : sample) {
    if (wait.call) sleeping.emplace(wait.tid, *wait.call);
  }
}

StillWaits DoesStillWait(const ThreadCall& waiter, const SleepLook& look) {
  auto slept = look.sleeping.find(waiter.tid);
  if (slept == look.sleeping.end()) return StillWaits::kNotClear;
  if (WaitedFutex(slept->second) != WaitedFutex(waiter.call)) return StillWaits::kNo;
  return HasRunBetween(waiter.tid, look) ? StillWaits::kNotClear : StillWaits::kYes;
}

}  // namespace stackd
