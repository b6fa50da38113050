// Which threads of a dump still wait for each other.
//
// Threads answer first, and locks are read later. With two contended locks somebody who waited for one when he was asked
// often holds the other by the time that it is read, and then looks like a part of a deadlock.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "daemon/collect/waits.h"

namespace stackd {

struct ThreadCall {
  int32_t tid = 0;
  SystemCall call;
};

// Of `calls` those by which threads wait in a circle, or each for itself, as `words` (by address) have it. A word that is
// no known lock may be a tid.
std::vector<ThreadCall> CallsInCircles(std::span<const ThreadCall> calls, std::span<const FutexWord> words);

// How often threads had run, what they slept in after that, and how often they had run then; by tid.
struct SleepLook {
  SleepLook(std::span<const ThreadMotion> before, std::span<const ThreadWait> sample, std::span<const ThreadMotion> after);

  // Without these where the kernel does not tell.
  std::unordered_map<int32_t, uint64_t> runs_before, runs_after;
  std::unordered_map<int32_t, SystemCall> sleeping;
};

enum class StillWaits {
  kYes,       // it has slept in that call from the first reading to the second
  kNo,        // it sleeps in another
  kNotClear,  // it ran: perhaps on its way back from having been asked
};

StillWaits DoesStillWait(const ThreadCall& waiter, const SleepLook& look);

}  // namespace stackd
