// Which threads of a dump still wait for each other.
//
// Threads answer first, and locks are read later, one after the other. With two contended locks, a thread that waited for
// one often holds the other by the time that it is read. That looks like a deadlock. Two equal readings do not do: locks
// that go back and forth are the same again. So an edge of a cycle is believed only if its thread sleeps, and has not run
// until all locks of the cycle were read. Only its owner releases a lock, and a thread that waits takes none: then all
// edges existed at one moment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/capture/managed.h"
#include "daemon/capture/waits.h"

namespace stackd {

struct ThreadCall {
  int32_t tid = 0;
  SystemCall call;
};

// An edge by one reading of a lock: `waiter_tid` waits until `holder_tid` releases it.
struct LockEdge {
  int32_t waiter_tid = 0;
  int32_t holder_tid = 0;
  uint64_t futex_avma = 0;  // 0: a runtime says so, whose lock it is
};

// Edges of `calls`, by `words` (by address). A word that is no known lock may be a tid.
std::vector<LockEdge> EdgesOf(std::span<const ThreadCall> calls, std::span<const FutexWord> words);
// Adds the edges of `waits`, in the place of other edges of the same threads: a runtime knows its own locks better.
std::vector<LockEdge> EdgesOf(std::span<const ThreadCall> calls, std::span<const FutexWord> words,
                              std::span<const ManagedWait> waits);

// Edges that form cycles, also of one thread with itself. If a thread has several edges, the first counts.
std::vector<LockEdge> EdgesInCycles(std::span<const LockEdge> edges);

// Gives `waits`, read before, the locks and owners of `waits_now`: locks have changed hands since, and objects have moved.
// A thread that waits no more has no owner. One that waits for a GIL wakes each 5 ms to ask for it. It keeps its owner if
// another thread waits for the same owner's now.
void TakeOwners(std::span<const ManagedWait> waits_now, std::vector<ManagedWait>* waits);

// How often threads had run, what they slept in after that, and how often they had run then; by tid.
struct SleepLook {
  SleepLook(std::span<const ThreadSchedStat> before, std::span<const ThreadWait> sample,
            std::span<const ThreadSchedStat> after);

  // Without these where the kernel does not tell.
  std::unordered_map<int32_t, uint64_t> runs_before, runs_after;
  std::unordered_map<int32_t, SystemCall> sleeping;
};

enum class StillWaits {
  kYes,       // it has slept in that call from the first reading to the second
  kNo,        // it sleeps in another
  kNotClear,  // it ran: perhaps it only returns from the dump's signal handler
};

StillWaits DoesStillWait(const LockEdge& edge, const SleepLook& look);

// The process, as ConfirmCycles looks at it.
struct CycleProbe {
  std::function<std::vector<ThreadSchedStat>()> read_sched_stats;
  std::function<Result<std::vector<ThreadWait>>()> sample;
  // Locks as they are now, of threads that sleep as the sample has it; nullopt: they cannot be read now.
  std::function<std::optional<std::vector<LockEdge>>(const std::vector<ThreadWait>& sample)> read_locks;
  std::function<bool()> is_connected;
};

struct ConfirmedCycles {
  bool has_looked = false;
  // Threads of a cycle of the last reading that wait for something else by now, or for which that is not clear.
  std::set<int32_t> unconfirmed_tids;
};

// Looks until all threads in cycles of the last reading have proved to wait still, at most until the deadline.
ConfirmedCycles ConfirmCycles(const CycleProbe& probe, int64_t deadline_ns);

}  // namespace stackd
