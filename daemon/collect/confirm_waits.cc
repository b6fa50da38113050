#include "daemon/collect/confirm_waits.h"

#include <linux/futex.h>

#include <algorithm>
#include <set>

#include "daemon/collect/waited_on.h"

namespace stackd {
namespace {

// 0 if it did not run, or nobody knows how often.
uint64_t RunCount(std::span<const ThreadMotion> motions, int32_t tid) {
  auto motion = std::ranges::find(motions, tid, &ThreadMotion::tid);
  return motion == motions.end() ? 0 : motion->run_count;
}

}  // namespace

std::vector<ThreadCall> HoldersThatWait(std::span<const ThreadCall> calls, std::span<const FutexWord> words) {
  std::set<int32_t> holders;
  for (const FutexWord& word : words) {
    if (word.mutex) holders.insert(word.mutex->owner_tid);
    if (word.rwlock) holders.insert(word.rwlock->writer_tid);
    // Of who inherits priority, or is joined.
    holders.insert(static_cast<int32_t>(word.value & FUTEX_TID_MASK));
  }
  std::vector<ThreadCall> waiting;
  std::ranges::copy_if(calls, std::back_inserter(waiting), [&](const ThreadCall& thread) {
    return WaitedFutex(thread.call).has_value() && holders.contains(thread.tid);
  });
  return waiting;
}

StillWaits DoesStillWait(const ThreadCall& waiter, const SleepLook& look) {
  auto slept = std::ranges::find(look.sample, waiter.tid, &ThreadWait::tid);
  if (slept == look.sample.end() || !slept->call) return StillWaits::kNotClear;
  if (WaitedFutex(*slept->call) != WaitedFutex(waiter.call)) return StillWaits::kNo;
  const bool slept_on = RunCount(look.before, waiter.tid) == RunCount(look.after, waiter.tid);
  return slept_on ? StillWaits::kYes : StillWaits::kNotClear;
}

}  // namespace stackd
