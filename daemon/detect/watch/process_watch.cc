#include "daemon/detect/watch/process_watch.h"

#include <algorithm>
#include <vector>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

constexpr int kMaxLookDoublings = 4;
constexpr int64_t kThreadsNs = 2 * kNsPerSecond;
// For a process in which nothing has run since the last look: what begins now is still found in 10 s.
constexpr int64_t kStillThreadsNs = 5 * kNsPerSecond;
// To confirm what the last look has seen.
constexpr int64_t kSoonNs = kNsPerSecond;
constexpr int64_t kMaxThreadsNs = 30 * kNsPerSecond;

constexpr int64_t kSampleNs = 4 * kNsPerSecond;
constexpr int64_t kMaxSampleNs = 30 * kNsPerSecond;
// What a look costs, times this, is the least time to the next: 0.1 % of a core.
constexpr int64_t kLookFactor = 1000;
// A thread costs the process this much: its helper opens a file of procfs.
constexpr int64_t kHelperNsPerThread = 6'000;
// Likewise to confirm what the last look has seen, 1 %.
constexpr int64_t kSoonFactor = 100;
// As kLookFactor for samples, which are needed only where threads wait in new places.
constexpr int64_t kSampleFactor = 500;

}  // namespace

ProcessWatch::~ProcessWatch() {
  heartbeats_.EndSuspicions();
  shutdown_.EndSuspicions();
  for (ThreadDetector* detector : detectors_) detector->EndSuspicions();
}

std::optional<int64_t> ProcessWatch::HelperRanNs() const {
  const auto helper = threads_.threads().find(threads_.helper_tid());
  if (helper == threads_.threads().end()) return std::nullopt;
  return helper->second.sched_stat.run_ns - helper_ran_before_ns_;
}

bool ProcessWatch::MaySample(int64_t now_ns) const {
  int64_t rest_ns = kSampleNs;
  if (const auto cost_ns = HelperRanNs()) {
    rest_ns = std::clamp(*cost_ns, kSampleNs / kSampleFactor, kMaxSampleNs / kSampleFactor) * kSampleFactor;
  }
  // A process that does not answer is asked less and less often.
  rest_ns = std::max(rest_ns, kSampleNs << std::min(failed_samples_, 4));
  return sampled_ns_ == 0 || now_ns - sampled_ns_ >= rest_ns;
}

void ProcessWatch::Sample(int64_t now_ns) {
  helper_ran_before_ns_ += HelperRanNs().value_or(0);
  sampled_ns_ = now_ns;
  const auto waits = process_.IsStopped(0) ? std::unexpected(Status{Code::kUnavailable, "stopped"})
                                           : process_.probe.SampleWaits(process_.id(), FreezeProbe::kTimeoutNs);
  if (!waits) {
    ++process_.counters.samples_failed;
    // The process is not to blame if a dump goes first.
    if (waits.error().code != Code::kAborted) ++failed_samples_;
    return;
  }
  ++process_.counters.samples;
  failed_samples_ = 0;
  threads_.Learn(*waits, now_ns);
  has_new_waits_ = true;
}

LockView ProcessWatch::ViewLocksNow() {
  const std::vector<FutexWait> waits = FutexesOf(threads_);
  if (waits.empty()) return {};
  const auto futexes = process_.probe.ReadFutexes(process_.id(), waits);
  return futexes ? ViewLocks(threads_, *futexes) : LockView{};
}

void ProcessWatch::LookAtThreads(int64_t now_ns, const std::function<int64_t()>& cpu_clock, int64_t stretch) {
  threads_due_ns_ = now_ns + kMaxThreadsNs;
  const bool is_wanted = process_.RuleFor(RuleTrigger::kDeadlock) != nullptr ||
                         process_.RuleFor(RuleTrigger::kSpin) != nullptr ||
                         process_.RuleFor(RuleTrigger::kStall) != nullptr;
  if (!is_wanted) {
    // The process may have had another name, and a rule with it.
    for (ThreadDetector* detector : detectors_) detector->EndSuspicions();
    return;
  }
  const int64_t begin_cpu_ns = cpu_clock();
  const auto sched_stats = process_.probe.ReadSchedStats(process_.id());
  if (!sched_stats) {
    // A dump went first, its agent is about to begin, or it had no processor in time.
    const int64_t rest_ns = std::min(kThreadsNs << std::min(failed_looks_++, kMaxLookDoublings), kMaxThreadsNs);
    threads_due_ns_ = now_ns + (sched_stats.error().code == Code::kAborted ? kSoonNs : rest_ns);
    return;
  }
  failed_looks_ = 0;
  ++process_.counters.schedstat_looks;
  threads_.Update(*sched_stats, now_ns, disturbed_looks_ > 0, std::exchange(captures_, 0));
  if (disturbed_looks_ > 0) --disturbed_looks_;
  Judge(now_ns);
  const int64_t helper_cost_ns = static_cast<int64_t>(sched_stats->size()) * kHelperNsPerThread;
  threads_due_ns_ = NextThreadsLookNs(now_ns, cpu_clock() - begin_cpu_ns + helper_cost_ns, stretch);
}

void ProcessWatch::Judge(int64_t now_ns) {
  for (ThreadDetector* detector : detectors_) detector->EndThoseThatMoved();
  if (threads_.NeedsSample(now_ns) && MaySample(now_ns)) Sample(now_ns);
  bool needs_locks = std::exchange(has_new_waits_, false);
  for (ThreadDetector* detector : detectors_) needs_locks |= detector->NeedsLocks(now_ns);
  if (!needs_locks) return;
  const LockView locks = ViewLocksNow();
  for (ThreadDetector* detector : detectors_) detector->Look({locks, now_ns, failed_samples_ == 0});
}

int64_t ProcessWatch::NextThreadsLookNs(int64_t now_ns, int64_t cost_ns, int64_t stretch) const {
  if (std::ranges::any_of(detectors_, &ThreadDetector::IsConfirming)) {
    return now_ns + std::min(std::max(kSoonNs, cost_ns * kSoonFactor), kMaxThreadsNs);
  }
  const bool is_still = threads_.StillSinceNs() < now_ns && !threads_.NeedsSample(now_ns);
  const int64_t interval_ns = std::max(is_still ? kStillThreadsNs : kThreadsNs, cost_ns * kLookFactor);
  return now_ns + std::min(interval_ns * stretch, kMaxThreadsNs);
}

}  // namespace stackd
