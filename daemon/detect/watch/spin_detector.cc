#include "daemon/detect/watch/spin_detector.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "daemon/detect/watch/words.h"

namespace stackd {
namespace {

constexpr int kSamples = 5;

// A wait for a lock of `tid` that has lasted since `since_ns`.
std::optional<LockWait> LongestKeptWaiting(const LockView& view, const ThreadWatch& threads, int32_t tid,
                                           int64_t since_ns) {
  for (const LockWait& lock : view.locks) {
    if (lock.owner_tid != tid || lock.owner_is_gone) continue;
    if (threads.threads().at(lock.waiter_tid).unmoved_since_ns <= since_ns) return lock;
  }
  return std::nullopt;
}

bool IsBusyFor(const ThreadWatch::Thread& thread, int64_t now_ns, int64_t after_ns) {
  return thread.busy_since_ns != 0 && now_ns - thread.busy_since_ns >= after_ns;
}

}  // namespace

bool SpinDetector::NeedsLocks(int64_t now_ns) {
  const Rule* rule = process_.RuleFor(RuleTrigger::kSpin);
  return IsConfirming() || (rule != nullptr && std::ranges::any_of(threads_.threads(), [&](const auto& entry) {
                              return IsBusyFor(entry.second, now_ns, rule->after_ns);
                            }));
}

void SpinDetector::Look(const ThreadLook& look) {
  const Rule* rule = process_.RuleFor(RuleTrigger::kSpin);
  if (rule == nullptr || !look.answers) return;
  std::map<int32_t, Suspect> before = std::exchange(suspects_, {});
  bool has_sampled = false;
  for (const auto& [tid, thread] : threads_.threads()) {
    if (!IsBusyFor(thread, look.now_ns, rule->after_ns)) continue;
    const auto lock = LongestKeptWaiting(look.locks, threads_, tid, look.now_ns - rule->after_ns);
    if (!lock) continue;
    Suspect& suspect = suspects_.emplace(tid, std::move(before[tid])).first->second;
    if (has_sampled || look.now_ns < suspect.rests_until_ns) continue;
    has_sampled = true;
    auto functions = process_.probe.FunctionsOf(process_.id(), tid);
    // What has no name cannot be told from something else.
    const bool stays = functions && !functions->empty() && !functions->front().empty() &&
                       (suspect.samples == 0 || *functions == suspect.functions);
    if (stays && ++suspect.samples < kSamples) {
      suspect.functions = std::move(*functions);
      continue;
    }
    suspect = {.rests_until_ns = look.now_ns + rule->after_ns};
    if (stays) Report(tid, functions->front(), *lock, look.now_ns);
  }
}

void SpinDetector::Report(int32_t tid, const std::string& function, const LockWait& kept_waiting, int64_t now_ns) const {
  ++process_.counters.spins;
  const int64_t duration_ns = now_ns - threads_.threads().at(tid).busy_since_ns;
  HangCapture hang{.cause = HangCause::kSpin,
                   .explanation = ThreadInWords(tid) + " has used a core for " + DurationInWords(duration_ns) +
                                  " and stays in " + function + ", and " + InWords(kept_waiting),
                   .tid = tid,
                   .duration_ns = duration_ns,
                   .loop_function = function};
  process_.Suspect(std::move(hang), "spin " + std::to_string(tid), RuleTrigger::kSpin, now_ns);
}

bool SpinDetector::IsConfirming() {
  return std::ranges::any_of(suspects_, [](const auto& entry) { return entry.second.samples > 0; });
}

}  // namespace stackd
