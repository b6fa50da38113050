// Which threads of a dump still wait for what they waited for when they were asked.
//
// Threads answer first, and locks are read later. With two contended locks somebody who waited for one when he was asked
// often holds the other by the time that it is read, and then looks like a part of a deadlock.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "daemon/collect/waits.h"

namespace stackd {

struct ThreadCall {
  int32_t tid = 0;
  SystemCall call;
};

// Of `calls` those on futexes by threads that hold, by `words`, what others wait for. Without one of these nobody waits in
// a circle.
std::vector<ThreadCall> HoldersThatWait(std::span<const ThreadCall> calls, std::span<const FutexWord> words);

// Two readings of how often threads have run, and what they slept in at a moment between.
struct SleepLook {
  // Empty where the kernel does not tell.
  std::vector<ThreadMotion> before;
  std::vector<ThreadWait> sample;
  std::vector<ThreadMotion> after;
};

enum class StillWaits {
  kYes,       // it has slept in that call from the first reading to the second
  kNo,        // it sleeps in another
  kNotClear,  // it ran: perhaps on its way back from having been asked
};

StillWaits DoesStillWait(const ThreadCall& waiter, const SleepLook& look);

}  // namespace stackd
