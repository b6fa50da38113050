#include "daemon/detect/watch/spin_detector.h"

#include <algorithm>
#include <utility>

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

}  // namespace

std::optional<Spin> SpinWatch::Look(const LockView& view, const ThreadWatch& threads, int64_t now_ns, int64_t after_ns,
                                    const FunctionsOf& functions_of) {
  std::map<int32_t, Suspect> before = std::exchange(suspects_, {});
  std::optional<Spin> found;
  bool has_sampled = false;
  for (const auto& [tid, thread] : threads.threads()) {
    if (thread.busy_since_ns == 0 || now_ns - thread.busy_since_ns < after_ns) continue;
    const auto lock = LongestKeptWaiting(view, threads, tid, now_ns - after_ns);
    if (!lock) continue;
    Suspect& suspect = suspects_.emplace(tid, std::move(before[tid])).first->second;
    if (has_sampled || now_ns < suspect.rests_until_ns) continue;
    has_sampled = true;
    auto functions = functions_of(tid);
    // What has no name cannot be told from something else.
    const bool stays = functions && !functions->empty() && !functions->front().empty() &&
                       (suspect.samples == 0 || *functions == suspect.functions);
    if (!stays) {
      suspect = {.rests_until_ns = now_ns + after_ns};
    } else if (++suspect.samples < kSamples) {
      suspect.functions = std::move(*functions);
    } else {
      found = Spin{tid, functions->front(), *lock, now_ns - thread.busy_since_ns};
      suspect = {.rests_until_ns = now_ns + after_ns};
    }
  }
  return found;
}

bool SpinWatch::IsSampling() const {
  return std::ranges::any_of(suspects_, [](const auto& entry) { return entry.second.samples > 0; });
}

}  // namespace stackd
