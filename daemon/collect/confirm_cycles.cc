#include <algorithm>
#include <set>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/capture/waited_on.h"
#include "daemon/collect/wait_collector.h"

namespace stackd {
namespace {

// The time until threads that had been asked sleep again and that was seen: longer only where they wait for a CPU.
constexpr int64_t kMinConfirmWaitsNs = 100 * kNsPerMs;
constexpr int64_t kMaxConfirmWaitsNs = 500 * kNsPerMs;

}  // namespace

CycleProbe WaitCollector::Probe(int64_t deadline_ns, bool gives_way) const {
  CycleProbe probe;
  probe.read_sched_stats = [this, gives_way] {
    return sampler_->ReadSchedStats(gives_way).value_or(std::vector<ThreadSchedStat>{});
  };
  probe.sample = [=, this] { return sampler_->SampleWaits(deadline_ns, gives_way); };
  probe.is_connected = [this] { return process_->connected(); };
  return probe;
}

void WaitCollector::DropEndedCycles(std::vector<ThreadCall> calls, int64_t deadline_ns, Capture* capture) {
  if (EdgesInCycles(EdgesOf(calls, capture->futexes)).empty()) return;
  Confirm(std::move(calls), {}, deadline_ns, capture);
}

void WaitCollector::DropEndedCyclesOfRuntimes(const LookAtLocks& look, int64_t deadline_ns, Capture* capture) {
  std::vector<ThreadCall> calls;
  for (const ThreadCapture& thread : capture->threads) {
    if (thread.call) calls.push_back({thread.tid, *thread.call});
  }
  // Cycles of futexes alone are confirmed by now.
  const auto in_cycles = EdgesInCycles(EdgesOf(calls, capture->futexes, capture->managed.waits));
  if (std::ranges::any_of(in_cycles, [](const LockEdge& edge) { return edge.futex_avma == 0; })) {
    Confirm(std::move(calls), look, deadline_ns, capture);
  }
}

void WaitCollector::DropWaitsThatEnded(Capture* capture) {
  std::set<int32_t> agents;
  std::vector<LockEdge> waits;  // each thread for itself: that is a cycle
  for (const ThreadCapture& thread : capture->threads) {
    if (thread.is_agent) agents.insert(thread.tid);
    if (thread.is_agent || thread.status == ThreadStatus::kExited) continue;
    const auto futex = thread.call ? WaitedFutex(*thread.call) : std::nullopt;
    if (!futex) return;
    waits.push_back({thread.tid, thread.tid, *futex});
  }
  if (waits.empty() || process_->IsStopped()) return;
  const int64_t deadline_ns = MonotonicNs() + kMaxConfirmWaitsNs;
  std::set<int32_t> now;
  CycleProbe probe = Probe(deadline_ns, /*gives_way=*/true);
  probe.read_sched_stats = [&now, read = probe.read_sched_stats] {
    auto sched_stats = read();
    for (const ThreadSchedStat& sched_stat : sched_stats) now.insert(sched_stat.tid);
    return sched_stats;
  };
  probe.read_locks = [&](const std::vector<ThreadWait>&) { return std::optional(waits); };
  const auto [has_looked, unconfirmed_tids] = ConfirmCycles(probe, deadline_ns);
  const bool has_more = std::ranges::any_of(now, [&](int32_t tid) {
    return !agents.contains(tid) && std::ranges::find(waits, tid, &LockEdge::waiter_tid) == waits.end();
  });
  for (ThreadCapture& thread : capture->threads) {
    if (has_more || unconfirmed_tids.contains(thread.tid)) thread.call.reset();
  }
}

void WaitCollector::Confirm(std::vector<ThreadCall> calls, const LookAtLocks& look, int64_t deadline_ns, Capture* capture) {
  // In a stopped process no thread goes on.
  if (process_->IsStopped()) return;
  const int64_t now_ns = MonotonicNs();
  deadline_ns = std::clamp(deadline_ns, now_ns + kMinConfirmWaitsNs, now_ns + kMaxConfirmWaitsNs);
  std::vector<FutexWait> futexes;
  for (const ThreadCall& thread : calls) {
    if (const auto futex = WaitedFutex(thread.call)) futexes.push_back({thread.tid, *futex});
  }
  std::vector<ManagedWait>& waits = capture->managed.waits;
  CycleProbe probe = Probe(deadline_ns, /*gives_way=*/!capture->crash.has_value());
  probe.read_locks = [&](const std::vector<ThreadWait>& sample) -> std::optional<std::vector<LockEdge>> {
    auto words = reader_->ReadFutexes(futexes);
    auto waits_now = look ? look(sample, deadline_ns) : std::vector<ManagedWait>{};
    if (!words || !waits_now) return std::nullopt;
    capture->futexes = std::move(*words);
    TakeOwners(*waits_now, &waits);
    return EdgesOf(calls, capture->futexes, waits);
  };
  const auto before = EdgesInCycles(EdgesOf(calls, capture->futexes, waits));
  auto [has_looked, unconfirmed_tids] = ConfirmCycles(probe, deadline_ns);
  if (!has_looked) {
    capture->notes.push_back(
        "threads wait for each other in a circle by one reading of their locks; it could not be confirmed by a second");
    for (const LockEdge& edge : before) {
      if (edge.futex_avma == 0) unconfirmed_tids.insert(edge.waiter_tid);
    }
  }
  for (ManagedWait& wait : waits) {
    if (unconfirmed_tids.erase(wait.waiter_tid) != 0) wait.owner_tid = 0;
  }
  for (ThreadCapture& thread : capture->threads) {
    if (unconfirmed_tids.contains(thread.tid)) thread.call.reset();
  }
}

}  // namespace stackd
