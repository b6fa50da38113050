#include "daemon/detect/watch/shutdown_detector.h"

#include <algorithm>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/detect/watch/words.h"

namespace stackd {
namespace {

// SIGTERM is looked for so often, by how soon it must be seen.
constexpr int64_t kMinRestNs = 250 * kNsPerMs;
constexpr int64_t kMaxRestNs = 2 * kNsPerSecond;
// For a process whose memory cannot be read: the look may have taken a while.
constexpr int64_t kSlowRestNs = 5 * kNsPerSecond;
// For a process that no rule asks for.
constexpr int64_t kUnwantedNs = 30 * kNsPerSecond;

}  // namespace

void ShutdownDetector::Look(int64_t now_ns, int64_t stretch) {
  const Rule* rule = process_.RuleFor(RuleTrigger::kShutdownTimeout);
  due_ns_ = now_ns + kUnwantedNs;
  if (rule == nullptr) return;
  ++process_.counters.sigterm_looks;
  const auto signs = process_.probe.ReadSigtermSigns(process_.id());
  const bool is_slow = signs && !signs->taken_count;
  const int64_t rest_ns = std::clamp(rule->after_ns / 8, kMinRestNs, kMaxRestNs) * stretch;
  due_ns_ = now_ns + (is_slow ? std::max(rest_ns, kSlowRestNs) : rest_ns);
  if (!signs) return;
  Note(*signs, now_ns);
  if (told_ns_ == 0 || now_ns - told_ns_ < rule->after_ns) return;
  ++process_.counters.shutdown_timeouts;
  const int64_t duration_ns = now_ns - std::exchange(told_ns_, 0);
  HangCapture hang{.cause = HangCause::kNotGone,
                   .explanation = "SIGTERM came " + DurationInWords(duration_ns) +
                                  " ago, and the process is still there; " +
                                  (has_taken_ ? "it has taken the signal" : "it has not even taken the signal"),
                   .duration_ns = duration_ns};
  suspicion_ = process_.Suspect(std::move(hang), "not_gone", RuleTrigger::kShutdownTimeout, now_ns);
}

void ShutdownDetector::Note(const SigtermSigns& signs, int64_t now_ns) {
  const bool was_pending = std::exchange(was_pending_, signs.is_pending);
  bool has_come = signs.is_pending && !was_pending;
  // Some ways to take it are not counted: signalfd().
  bool was_taken = was_pending && !signs.is_pending;
  if (signs.taken_count) {
    const bool has_grown = taken_count_ && *taken_count_ != *signs.taken_count;
    taken_count_ = signs.taken_count;
    has_come |= has_grown;
    was_taken |= has_grown;
  }
  if (has_come && told_ns_ == 0) {
    told_ns_ = now_ns;
    has_taken_ = false;
  }
  has_taken_ |= was_taken;
}

}  // namespace stackd
