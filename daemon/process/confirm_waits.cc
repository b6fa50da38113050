#include "daemon/process/confirm_waits.h"

#include <unistd.h>

#include <algorithm>

#include "daemon/base/clock.h"
#include "daemon/capture/waited_on.h"

namespace stackd {
namespace {

constexpr int64_t kFirstPauseNs = kNsPerMs;

std::unordered_map<int32_t, uint64_t> RunCounts(std::span<const ThreadSchedStat> sched_stats) {
  std::unordered_map<int32_t, uint64_t> counts;
  for (const ThreadSchedStat& sched_stat : sched_stats) counts.emplace(sched_stat.tid, sched_stat.run_count);
  return counts;
}

bool HasRunBetween(int32_t tid, const SleepLook& look) {
  auto before = look.runs_before.find(tid);
  auto after = look.runs_after.find(tid);
  if (before == look.runs_before.end() || after == look.runs_after.end()) return false;
  return before->second != after->second;
}

bool WaitForSameGilAndOwner(const ManagedWait& one, const ManagedWait& other) {
  return one.kind == ManagedLockKind::kGil && other.kind == one.kind && other.lock_avma == one.lock_avma &&
         other.owner_tid == one.owner_tid;
}

}  // namespace

std::vector<LockEdge> EdgesOf(std::span<const ThreadCall> calls, std::span<const FutexWord> words) {
  std::vector<LockEdge> edges;
  for (const ThreadCall& thread : calls) {
    const auto futex = WaitedFutex(thread.call);
    if (!futex) continue;
    auto word = std::ranges::lower_bound(words, *futex, {}, &FutexWord::avma);
    if (word == words.end() || word->avma != *futex) continue;
    edges.push_back({thread.tid, HolderOf(*word), *futex});
  }
  return edges;
}

std::vector<LockEdge> EdgesOf(std::span<const ThreadCall> calls, std::span<const FutexWord> words,
                              std::span<const ManagedWait> waits) {
  std::vector<LockEdge> edges;
  for (const ManagedWait& wait : waits) edges.push_back({wait.waiter_tid, wait.owner_tid, 0});
  const std::vector<LockEdge> of_futexes = EdgesOf(calls, words);
  edges.insert(edges.end(), of_futexes.begin(), of_futexes.end());
  return edges;
}

void TakeOwners(std::span<const ManagedWait> waits_now, std::vector<ManagedWait>* waits) {
  for (ManagedWait& wait : *waits) {
    const auto now = std::ranges::find(waits_now, wait.waiter_tid, &ManagedWait::waiter_tid);
    if (now != waits_now.end() && now->kind == wait.kind) {
      wait.owner_tid = now->owner_tid;
      wait.lock_avma = now->lock_avma;
    } else if (std::ranges::none_of(waits_now,
                                    [&](const ManagedWait& other) { return WaitForSameGilAndOwner(wait, other); })) {
      wait.owner_tid = 0;
    }
  }
}

std::vector<LockEdge> EdgesInCycles(std::span<const LockEdge> edges) {
  struct Waiter {
    const LockEdge* edge;
    size_t walk = 0;  // that met it first
  };
  std::unordered_map<int32_t, Waiter> waiters;
  for (const LockEdge& edge : edges) waiters.emplace(edge.waiter_tid, Waiter{&edge});
  std::vector<LockEdge> in_cycles;
  size_t walk = 0;
  for (auto& [start, first] : waiters) {
    ++walk;
    auto at = waiters.find(start);
    while (at != waiters.end() && at->second.walk == 0) {
      at->second.walk = walk;
      at = waiters.find(at->second.edge->holder_tid);
    }
    // Only a walk that comes back to its own steps has closed a cycle.
    if (at == waiters.end() || at->second.walk != walk) continue;
    const int32_t closed_by = at->first;
    do {
      in_cycles.push_back(*at->second.edge);
      at = waiters.find(at->second.edge->holder_tid);
    } while (at->first != closed_by);
  }
  return in_cycles;
}

SleepLook::SleepLook(std::span<const ThreadSchedStat> before, std::span<const ThreadWait> sample,
                     std::span<const ThreadSchedStat> after)
    : runs_before(RunCounts(before)), runs_after(RunCounts(after)) {
  for (const ThreadWait& wait : sample) {
    if (wait.call) sleeping.emplace(wait.tid, *wait.call);
  }
}

StillWaits DoesStillWait(const LockEdge& edge, const SleepLook& look) {
  auto slept = look.sleeping.find(edge.waiter_tid);
  if (slept == look.sleeping.end()) return StillWaits::kNotClear;
  if (edge.futex_avma != 0 && WaitedFutex(slept->second) != edge.futex_avma) return StillWaits::kNo;
  return HasRunBetween(edge.waiter_tid, look) ? StillWaits::kNotClear : StillWaits::kYes;
}

ConfirmedCycles ConfirmCycles(const CycleProbe& probe, int64_t deadline_ns) {
  ConfirmedCycles result;
  std::set<int32_t> ended, not_clear;
  for (int64_t pause_ns = kFirstPauseNs;; pause_ns *= 2) {
    const auto before = probe.read_sched_stats();
    const auto sample = probe.sample();
    auto edges = sample && !sample->empty() ? probe.read_locks(*sample) : std::nullopt;
    const auto after = probe.read_sched_stats();
    if (edges) {
      result.has_looked = true;
      not_clear.clear();
      std::erase_if(*edges, [&](const LockEdge& edge) { return ended.contains(edge.waiter_tid); });
      const SleepLook look(before, *sample, after);
      for (const LockEdge& edge : EdgesInCycles(*edges)) {
        const StillWaits still = DoesStillWait(edge, look);
        if (still == StillWaits::kNo) ended.insert(edge.waiter_tid);
        if (still == StillWaits::kNotClear) not_clear.insert(edge.waiter_tid);
      }
      if (not_clear.empty()) break;
    }
    const bool may_not_look = !sample && sample.error().code == Code::kFailedPrecondition;
    if (may_not_look || !probe.is_connected() || MonotonicNs() + pause_ns >= deadline_ns) break;
    usleep(static_cast<useconds_t>(pause_ns / 1000));
  }
  result.unconfirmed_tids = std::move(ended);
  result.unconfirmed_tids.merge(not_clear);
  return result;
}

}  // namespace stackd
