#include "daemon/detect/watch/thread_watch.h"

#include <algorithm>
#include <utility>

namespace stackd {
namespace {

// To answer a capture takes a thread one run, or some where it is preempted or waits for a page.
constexpr uint64_t kRunsOfAnAnswer = 4;
// Share of the time in which the thread was not kept from running.
constexpr int64_t kBusyPercent = 95;

bool HasRun(const ThreadSchedStat& before, const ThreadSchedStat& now) {
  // A thread that nothing else wants to run in place of counts no new run.
  return before.run_count != now.run_count || before.run_ns != now.run_ns;
}

// No thread gets younger: this is another one, with a number that was used again.
bool IsAnother(const ThreadSchedStat& before, const ThreadSchedStat& now) {
  return now.run_count < before.run_count || now.run_ns < before.run_ns;
}

bool IsSame(const ThreadWait& a, const ThreadWait& b) {
  return a.rsp_avma == b.rsp_avma && a.rip_avma == b.rip_avma && a.call.has_value() == b.call.has_value() &&
         (!a.call || (a.call->number == b.call->number && a.call->arguments == b.call->arguments));
}

bool WasBusy(const ThreadSchedStat& before, const ThreadSchedStat& now, int64_t elapsed_ns) {
  const int64_t ran_ns = now.run_ns - before.run_ns;
  const int64_t queued_ns = std::clamp<int64_t>(now.runnable_ns - before.runnable_ns, 0, elapsed_ns / 10 * 9);
  return elapsed_ns > 0 && ran_ns >= (elapsed_ns - queued_ns) / 100 * kBusyPercent;
}

}  // namespace

void ThreadWatch::Update(std::span<const ThreadSchedStat> sched_stats, int64_t now_ns, bool was_disturbed, int captures) {
  const uint64_t answers = kRunsOfAnAnswer * static_cast<uint64_t>(captures);
  std::map<int32_t, Thread> threads;
  for (const ThreadSchedStat& sched_stat : sched_stats) {
    Thread& thread = threads[sched_stat.tid];
    auto known = threads_.find(sched_stat.tid);
    if (known == threads_.end() || IsAnother(known->second.sched_stat, sched_stat)) {
      thread.sched_stat = sched_stat;
      thread.unmoved_since_ns = now_ns;
      if (!threads_.empty()) thread.absent_at_ns = looked_ns_;
      continue;
    }
    thread = std::move(known->second);
    const ThreadSchedStat before = std::exchange(thread.sched_stat, sched_stat);
    if (!WasBusy(before, sched_stat, now_ns - looked_ns_)) {
      thread.busy_since_ns = 0;
    } else if (thread.busy_since_ns == 0) {
      thread.busy_since_ns = looked_ns_;
    }
    if (!HasRun(before, sched_stat)) continue;
    if (!was_disturbed) {
      thread.before.reset();
    } else if (thread.before) {
      thread.before->allowed_runs += answers;
    } else if (thread.wait) {
      thread.before = {*thread.wait, thread.unmoved_since_ns, before.run_count, std::max(answers, kRunsOfAnAnswer)};
    }
    thread.unmoved_since_ns = now_ns;
    thread.was_sampled = false;
    thread.wait.reset();
  }
  threads_ = std::move(threads);
  looked_ns_ = now_ns;
  std::erase_if(helper_candidates_, [this](int32_t tid) { return !threads_.contains(tid); });
}

void ThreadWatch::Learn(std::span<const ThreadWait> waits, int64_t now_ns) {
  std::set<int32_t> silent;
  std::map<int32_t, std::optional<ThreadWait>> earlier_waits;
  for (auto& [tid, thread] : threads_) {
    if (thread.unmoved_since_ns < now_ns) silent.insert(tid);
    thread.was_sampled = true;
    earlier_waits.emplace(tid, std::exchange(thread.wait, std::nullopt));
  }
  for (const ThreadWait& wait : waits) {
    silent.erase(wait.tid);
    auto found = threads_.find(wait.tid);
    if (found == threads_.end()) continue;
    Thread& thread = found->second;
    thread.wait = wait;
    const std::optional<ThreadWait>& earlier = earlier_waits[wait.tid];
    if (!earlier || !IsSame(*earlier, wait)) thread.waits_since_ns = now_ns;
    if (thread.before && IsSame(thread.before->wait, wait) &&
        thread.sched_stat.run_count - thread.before->run_count <= thread.before->allowed_runs) {
      thread.unmoved_since_ns = thread.before->unmoved_since_ns;
    }
    thread.before.reset();
  }
  // The helper is the thread that never runs and yet is in no sample, each time: it looks at the others. Other threads that
  // are in none are about to run. Where the helper ran just before, to register for a sample, the next one will tell.
  if (helper_candidates_.empty()) {
    helper_candidates_ = std::move(silent);
  } else if (helper_candidates_.size() > 1) {
    std::erase_if(helper_candidates_, [&](int32_t tid) { return !silent.contains(tid); });
  }
}

bool ThreadWatch::NeedsSample(int64_t now_ns) const {
  return std::ranges::any_of(threads_, [&](const auto& entry) {
    const auto& [tid, thread] = entry;
    // A thread that answered a capture may go on with what is known of it.
    const bool sleeps = thread.unmoved_since_ns < now_ns || thread.before;
    return sleeps && !thread.was_sampled && tid != helper_tid();
  });
}

int64_t ThreadWatch::StillSinceNs() const {
  int64_t since_ns = 0;
  for (const auto& [tid, thread] : threads_) {
    if (tid == helper_tid()) continue;
    since_ns = std::max(since_ns, thread.before ? thread.before->unmoved_since_ns : thread.unmoved_since_ns);
  }
  return since_ns;
}

std::set<int32_t> ThreadWatch::Tids() const {
  std::set<int32_t> tids;
  for (const auto& [tid, thread] : threads_) tids.insert(tid);
  return tids;
}

std::map<int32_t, ThreadWatch::Past> ThreadWatch::Pasts() const {
  std::map<int32_t, Past> pasts;
  for (const auto& [tid, thread] : threads_) {
    Past& seen = pasts[tid];
    seen.sched_stat = thread.sched_stat;
    seen.past.absent_at_ns = thread.absent_at_ns;
    if (thread.unmoved_since_ns < looked_ns_) seen.past.unmoved_since_ns = thread.unmoved_since_ns;
  }
  return pasts;
}

}  // namespace stackd
