#include "daemon/detect/watch/runtime_cycles.h"

#include <algorithm>

namespace stackd {
namespace {

constexpr int kMaxTries = 3;

// Objects move: their addresses are no part of what a circle is known by.
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

void RuntimeCircles::Look(const LockView& view, std::span<const ManagedWait> waits, const ThreadWatch& threads,
                          int64_t now_ns) {
  std::set<std::string> seen;
  for (const std::vector<WaitEdge>& cycle : FindCycles(EdgesOf(view, waits))) {
    // Circles of the C library's locks alone are the deadlock watch's.
    if (std::ranges::none_of(cycle, [](const WaitEdge& edge) { return edge.lock_avma == 0; })) continue;
    const std::string key = KeyOf(cycle);
    seen.insert(key);
    Circle& circle = circles_.try_emplace(key, Circle{.since_ns = now_ns}).first->second;
    for (const WaitEdge& edge : cycle) circle.tids.insert(edge.waiter_tid);
  }
  std::erase_if(circles_, [&](const auto& entry) {
    const Circle& circle = entry.second;
    if (seen.contains(entry.first) || !AllSleep(circle.tids, threads)) return false;
    if (circle.suspicion != nullptr) circle.suspicion->over = true;
    return true;
  });
}

std::vector<RuntimeCircles::Circle*> RuntimeCircles::Unproven() {
  std::vector<Circle*> unproven;
  for (auto& [key, circle] : circles_) {
    if (circle.suspicion == nullptr && circle.tries < kMaxTries) unproven.push_back(&circle);
  }
  return unproven;
}

void RuntimeCircles::End() {
  for (const auto& [key, circle] : circles_) {
    if (circle.suspicion != nullptr) circle.suspicion->over = true;
  }
  circles_.clear();
}

}  // namespace stackd
