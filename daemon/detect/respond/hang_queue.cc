#include "daemon/detect/respond/hang_queue.h"

#include <algorithm>
#include <utility>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

constexpr int kTries = 3;
constexpr int64_t kNextTryNs = 10 * kNsPerSecond;

}  // namespace

HangQueue::Verdict HangQueue::Add(SharedSuspicion suspicion, int64_t now_ns) {
  DropOver();
  const auto last = last_dump_ns_.find({suspicion->process_id, suspicion->subject});
  if (last != last_dump_ns_.end()) {
    // Nothing new can be seen in a deadlock.
    const bool is_same_for_ever = suspicion->hang.cause == HangCause::kDeadlock;
    if (is_same_for_ever || now_ns - last->second < suspicion->rule->cooldown_ns) return Verdict::kInCooldown;
  }
  waiting_.push_back({std::move(suspicion)});
  return Verdict::kQueued;
}

void HangQueue::DropOver() {
  over_before_dump_ +=
      static_cast<int64_t>(std::erase_if(waiting_, [](const Waiting& waiting) { return waiting.suspicion->over.load(); }));
}

size_t HangQueue::RecentOf(const Rule& rule, int64_t now_ns) {
  std::deque<Dumped>& dumps = recent_[rule.name];
  while (!dumps.empty() && now_ns - dumps.front().when_ns >= rule.window_ns) dumps.pop_front();
  return dumps.size();
}

SharedSuspicion HangQueue::Take(int64_t now_ns) {
  DropOver();
  auto best = waiting_.end();
  std::ptrdiff_t fewest = 0;
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    if (now_ns < it->not_before_ns) continue;
    const Rule& rule = *it->suspicion->rule;
    if (RecentOf(rule, now_ns) >= static_cast<size_t>(rule.count)) {
      if (!std::exchange(it->was_deferred, true)) ++deferred_;
      continue;
    }
    const auto dumps = std::ranges::count(recent_[rule.name], it->suspicion->process_id, &Dumped::process_id);
    if (best == waiting_.end() || dumps < fewest) {
      best = it;
      fewest = dumps;
    }
  }
  if (best == waiting_.end()) return nullptr;
  SharedSuspicion taken = std::move(best->suspicion);
  waiting_.erase(best);
  recent_[taken->rule->name].push_back({taken->process_id, now_ns});
  last_dump_ns_[{taken->process_id, taken->subject}] = now_ns;
  return taken;
}

bool HangQueue::Return(SharedSuspicion suspicion, int64_t now_ns) {
  if (++suspicion->failed_dumps >= kTries) return false;
  last_dump_ns_.erase({suspicion->process_id, suspicion->subject});
  waiting_.push_back({.suspicion = std::move(suspicion), .not_before_ns = now_ns + kNextTryNs});
  return true;
}

std::vector<SharedSuspicion> HangQueue::TakeOverdue(int64_t now_ns, int64_t patience_ns) {
  std::vector<SharedSuspicion> overdue;
  for (Waiting& waiting : waiting_) {
    if (waiting.was_overdue || now_ns - waiting.suspicion->seen_ns < patience_ns) continue;
    waiting.was_overdue = true;
    overdue.push_back(waiting.suspicion);
  }
  return overdue;
}

void HangQueue::Forget(const std::string& process_id) {
  DropOver();
  std::erase_if(last_dump_ns_, [&](const auto& entry) { return entry.first.first == process_id; });
}

}  // namespace stackd
