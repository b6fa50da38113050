#include "daemon/detect/watch/freeze_probe.h"

#include <algorithm>
#include <utility>

namespace stackd {
namespace {

// A process that left a question without an answer, frozen or not, is asked again after this time. If it is silent again,
// the rest is twice as long, then four times.
constexpr int64_t kRestNs = 10 * kNsPerSecond;
constexpr int kMaxRestDoublings = 2;
// What was seen so long ago says whether a thread has run lately.
constexpr int64_t kSeenNs = kNsPerSecond;

}  // namespace

Frozen FreezeProbe::Ask(int64_t now_ns, const std::function<bool()>& may_ask) {
  if (asked_ns_ == now_ns) return answer_;
  if (now_ns < rests_until_ns_) return answer_ == Frozen::kYes ? answer_ : SeeWhetherItRuns(now_ns);
  if (!may_ask()) return Frozen::kNotKnown;
  asked_ns_ = now_ns;
  ProcessProbe& probe = process_->probe;
  const auto before = probe.ReadProcessSchedStats(process_->id());
  const auto waits = probe.SampleWaits(process_->id(), kTimeoutNs);
  if (waits) {
    unanswered_ = 0;
    return answer_ = Frozen::kNo;
  }
  // A dump went first.
  if (waits.error().code == Code::kAborted) return answer_ = Frozen::kNotKnown;
  auto after = probe.ReadProcessSchedStats(process_->id());
  answer_ = after.empty() || before.empty() ? Frozen::kNotKnown : before != after ? Frozen::kNo : Frozen::kYes;
  rests_until_ns_ = now_ns + (kRestNs << std::min(unanswered_++, kMaxRestDoublings));
  seen_sched_stat_ = std::move(after);
  seen_ns_ = now_ns;
  return answer_;
}

Frozen FreezeProbe::SeeWhetherItRuns(int64_t now_ns) {
  auto sched_stat = process_->probe.ReadProcessSchedStats(process_->id());
  if (sched_stat.empty()) return Frozen::kNotKnown;
  const auto before = std::exchange(seen_sched_stat_, std::move(sched_stat));
  const int64_t elapsed_ns = now_ns - std::exchange(seen_ns_, now_ns);
  const bool has_run = !before.empty() && before != seen_sched_stat_;
  return elapsed_ns <= kSeenNs && has_run ? Frozen::kNo : Frozen::kNotKnown;
}

}  // namespace stackd
