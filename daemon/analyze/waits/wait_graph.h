// Who waits for whom, from the words of locks alone.
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

// Of a thread in `call`, where `futex` is what it waits on: who must act. `tids` are the threads of the process: an owner
// that is none of them gives no edge, nor does a lock that does not say who has it, or that processes share.
std::optional<WaitEdge> EdgeOf(int32_t tid, const SystemCall& call, const FutexWord& futex, const std::set<int32_t>& tids);

// Each circle of waits, once, beginning with the edge of its lowest tid. A thread waits for one thing, so circles share
// none.
std::vector<std::vector<WaitEdge>> FindCycles(std::span<const WaitEdge> edges);

}  // namespace stackd
