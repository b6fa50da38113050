#include "daemon/detect/watch/deadlock_detector.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/detect/watch/words.h"

namespace stackd {
namespace {

constexpr size_t kEdgesInWords = 4;

std::string InWords(const Deadlock& deadlock) {
  const auto& edges = deadlock.edges;
  if (edges.size() == 1) return ThreadInWords(edges[0].waiter_tid) + " waits for a lock that it holds itself";
  std::string text = std::to_string(edges.size()) + " threads wait for each other in a circle: ";
  for (size_t i = 0; i < edges.size(); ++i) {
    if (i == kEdgesInWords) return text + " and " + std::to_string(edges.size() - kEdgesInWords) + " more";
    text += (i == 0 ? "" : ", ") + ThreadInWords(edges[i].waiter_tid);
  }
  return text;
}

}  // namespace

// Ends a deadlock if one of its threads does something else: a signal or a timer of the program let that thread out.
void DeadlockDetector::EndThoseThatMoved() {
  std::erase_if(known_, [this](const auto& entry) {
    const Known& known = entry.second;
    const bool is_over = std::ranges::any_of(known.deadlock.edges, [&](const WaitEdge& edge) {
      const auto thread = threads_.threads().find(edge.waiter_tid);
      return thread == threads_.threads().end() ||
             (!thread->second.before && thread->second.unmoved_since_ns > known.found_ns);
    });
    if (is_over) known.suspicion->over = true;
    return is_over;
  });
}

void DeadlockDetector::EndSuspicions() {
  for (auto& [key, known] : known_) EndSuspicion(&known.suspicion);
  known_.clear();
  runtime_cycles_.End();
}

void DeadlockDetector::Look(const ThreadLook& look) {
  if (process_.RuleFor(RuleTrigger::kDeadlock) == nullptr) return;
  for (Deadlock& deadlock : certain_.Look(look.locks, threads_, look.now_ns)) {
    if (known_.contains(deadlock.key)) continue;
    ++process_.counters.deadlocks;
    HangCapture hang{.cause = HangCause::kDeadlock,
                     .explanation = InWords(deadlock),
                     .tid = deadlock.edges[0].waiter_tid,
                     .duration_ns = look.now_ns - deadlock.since_ns};
    auto suspicion = process_.Suspect(std::move(hang), "deadlock " + deadlock.key, RuleTrigger::kDeadlock, look.now_ns);
    std::string key = deadlock.key;
    known_.emplace(std::move(key), Known{std::move(deadlock), look.now_ns, std::move(suspicion)});
  }
  LookAtRuntimes(look.locks, look.now_ns);
}

void DeadlockDetector::LookAtRuntimes(const LockView& view, int64_t now_ns) {
  std::vector<ThreadWait> sleeping;
  for (const auto& [tid, thread] : threads_.threads()) {
    if (thread.wait) sleeping.push_back(*thread.wait);
  }
  const auto waits = process_.probe.ReadLockWaits(process_.id(), sleeping);
  if (!waits) return;
  runtime_cycles_.Look(view, *waits, threads_, now_ns);
  for (RuntimeCycles::Cycle* cycle : runtime_cycles_.Unproven()) {
    ++cycle->tries;
    const auto found = process_.probe.FindCycle(process_.id());
    if (!found || !*found) continue;
    const auto& [explanation, tids, owner_is_unknown] = **found;
    if (owner_is_unknown) continue;  // of another lock
    if (std::ranges::none_of(tids, [&](int32_t tid) { return cycle->tids.contains(tid); })) continue;
    ++process_.counters.deadlocks;
    HangCapture hang{
        .cause = HangCause::kDeadlock, .explanation = explanation, .tid = tids[0], .duration_ns = now_ns - cycle->since_ns};
    cycle->suspicion =
        process_.Suspect(std::move(hang), "deadlock " + std::to_string(tids[0]), RuleTrigger::kDeadlock, now_ns);
  }
}

}  // namespace stackd
