#include "daemon/detect/watch/runtime_cycles.h"

#include <algorithm>

namespace stackd {
namespace {

constexpr int kMaxTries = 3;

// Objects move: their addresses are no part of what a cycle is known by.
std::vector<WaitEdge> EdgesOf(const LockView& view, std::span<const ManagedWait> waits) {
  std::vector<WaitEdge> edges;
  for (const ManagedWait& wait : waits) edges.push_back({wait.waiter_tid, wait.owner_tid, 0});
  edges.insert(edges.end(), view.edges.begin(), view.edges.end());
  return edges;
}

bool AllSleep(const std::set<int32_t>& tids, const ThreadWatch& threads) {
  return std::ranges::all_of(tids, [&](int32_t tid) {
    const auto thread = threads.threads().find(tid);
    return thread == threads.threads().end() || thread->second.wait;
  });
}

}  // namespace

void RuntimeCycles::Look(const LockView& view, std::span<const ManagedWait> waits, const ThreadWatch& threads,
                         int64_t now_ns) {
  std::set<std::string> seen;
  for (const std::vector<WaitEdge>& edges : FindCycles(EdgesOf(view, waits))) {
    // Cycles of the C library's locks alone are the deadlock watch's.
    if (std::ranges::none_of(edges, [](const WaitEdge& edge) { return edge.lock_avma == 0; })) continue;
    const std::string key = KeyOf(edges);
    seen.insert(key);
    Cycle& cycle = cycles_.try_emplace(key, Cycle{.since_ns = now_ns}).first->second;
    for (const WaitEdge& edge : edges) cycle.tids.insert(edge.waiter_tid);
  }
  std::erase_if(cycles_, [&](const auto& entry) {
    const Cycle& cycle = entry.second;
    if (seen.contains(entry.first) || !AllSleep(cycle.tids, threads)) return false;
    if (cycle.suspicion != nullptr) cycle.suspicion->over = true;
    return true;
  });
}

std::vector<RuntimeCycles::Cycle*> RuntimeCycles::Unproven() {
  std::vector<Cycle*> unproven;
  for (auto& [key, cycle] : cycles_) {
    if (cycle.suspicion == nullptr && cycle.tries < kMaxTries) unproven.push_back(&cycle);
  }
  return unproven;
}

void RuntimeCycles::End() {
  for (const auto& [key, cycle] : cycles_) {
    if (cycle.suspicion != nullptr) cycle.suspicion->over = true;
  }
  cycles_.clear();
}

}  // namespace stackd
