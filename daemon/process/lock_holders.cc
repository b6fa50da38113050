#include "daemon/process/lock_holders.h"

#include <algorithm>
#include <set>

#include "daemon/capture/waited_on.h"

namespace stackd {
namespace {

bool IsOutsideCalls(const ThreadCapture& thread) {
  return thread.status == ThreadStatus::kCaptured && thread.has_stack && !thread.call && !thread.is_agent;
}

std::set<int32_t> Holders(const Capture& capture) {
  std::set<int32_t> tids;
  for (const FutexWord& word : capture.futexes) {
    const bool is_lock = word.mutex || word.rwlock || word.stdio_owner_tid != 0;
    if (is_lock && !word.is_shared) tids.insert(HolderOf(word));
  }
  return tids;
}

}  // namespace

bool HasHolderOutsideCalls(const Capture& capture) {
  const std::set<int32_t> holders = Holders(capture);
  return std::ranges::any_of(
      capture.threads, [&](const ThreadCapture& thread) { return IsOutsideCalls(thread) && holders.contains(thread.tid); });
}

void ForgetUntold(Capture* capture) {
  for (ThreadCapture& thread : capture->threads) {
    const auto futex = thread.call ? WaitedFutex(*thread.call) : std::nullopt;
    if (!futex || std::ranges::binary_search(capture->futexes, *futex, {}, &FutexWord::avma)) continue;
    thread.call->known_arguments = 0;
  }
}

void MarkHoldersAsleep(std::span<const ThreadWait> sample, Capture* capture) {
  const std::set<int32_t> holders = Holders(*capture);
  for (ThreadCapture& thread : capture->threads) {
    if (!IsOutsideCalls(thread) || !holders.contains(thread.tid)) continue;
    const auto seen = std::ranges::find(sample, thread.tid, &ThreadWait::tid);
    const bool sleeps_there = seen != sample.end() && !seen->call &&
                              seen->rip_avma == thread.registers.value[Registers::kRip] &&
                              seen->rsp_avma == thread.registers.value[Registers::kRsp];
    if (sleeps_there) thread.kernel_state = 'S';
  }
}

}  // namespace stackd
