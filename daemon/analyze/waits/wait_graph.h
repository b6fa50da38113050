// Which thread waits for which, from the words of locks alone.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "daemon/capture/waited_on.h"
#include "daemon/capture/waits.h"

namespace stackd {

// `waiter_tid` waits for `owner_tid` to release the lock at `lock_avma` (or to end: then it is the address of its tid).
struct WaitEdge {
  int32_t waiter_tid = 0;
  int32_t owner_tid = 0;
  uint64_t lock_avma = 0;

  bool operator==(const WaitEdge&) const = default;
};

// Says which thread must act before a thread in `call`, which waits on `futex`, goes on. `tids` are the threads of the
// process. There is no edge if the owner is none of these, or if the lock does not say who has it. Neither is there one for
// a lock that processes share.
std::optional<WaitEdge> EdgeOf(int32_t tid, const SystemCall& call, const FutexWord& futex, const std::set<int32_t>& tids);

// Finds each cycle of waits, once, beginning with the edge of its lowest tid. A thread waits for one thing, so no two
// cycles share a thread.
std::vector<std::vector<WaitEdge>> FindCycles(std::span<const WaitEdge> edges);

}  // namespace stackd
