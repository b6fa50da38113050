#include "daemon/analyze/waits/wait_graph.h"

#include <linux/futex.h>

#include <algorithm>
#include <map>

namespace stackd {
namespace {

constexpr int kOperation = 1;
// Alignment of struct pthread, and place of its field `tid`: glibc 2.17 to 2.41 on x86-64 (nptl/descr.h).
constexpr uint64_t kDescriptorAlignment = 64;
constexpr uint64_t kTidOffset = 0x2d0;

bool IsPriorityInheritance(uint32_t command) { return command == FUTEX_LOCK_PI || command == FUTEX_LOCK_PI2; }

}  // namespace

std::optional<WaitEdge> EdgeOf(int32_t tid, const SystemCall& call, const FutexWord& futex, const std::set<int32_t>& tids) {
  if (WaitedFutex(call) != futex.avma) return std::nullopt;
  // A tid may be another thread's in another PID namespace.
  if (futex.is_shared) return std::nullopt;
  const auto operation = static_cast<uint32_t>(call.arguments[kOperation]);
  const auto edge_to = [&](int32_t owner, uint64_t lock) -> std::optional<WaitEdge> {
    if (owner == 0 || !tids.contains(owner)) return std::nullopt;
    return WaitEdge{tid, owner, lock};
  };
  if (IsPriorityInheritance(operation & FUTEX_CMD_MASK)) {
    return edge_to(static_cast<int32_t>(futex.value & FUTEX_TID_MASK), futex.avma);
  }
  if (futex.mutex) return edge_to(futex.mutex->owner_tid, futex.avma - futex.mutex->futex_offset);
  if (futex.stdio_owner_tid != 0) return edge_to(futex.stdio_owner_tid, futex.avma);
  if (futex.rwlock) return edge_to(futex.rwlock->writer_tid, futex.rwlock->avma);
  // The kernel clears the tid of a thread that ends, and wakes that word as a shared futex. pthread_join() waits for it so,
  // and nothing else in the C library does on a word that is a tid. Other shared words may hold any small number, but
  // hardly lie where the C library keeps a tid.
  const bool is_private = (operation & FUTEX_PRIVATE_FLAG) != 0;
  if (!is_private && futex.avma % kDescriptorAlignment == kTidOffset % kDescriptorAlignment &&
      futex.value != static_cast<uint32_t>(tid)) {
    return edge_to(static_cast<int32_t>(futex.value), futex.avma);
  }
  return std::nullopt;
}

std::vector<std::vector<WaitEdge>> FindCycles(std::span<const WaitEdge> edges) {
  std::map<int32_t, WaitEdge> by_waiter;
  for (const WaitEdge& edge : edges) by_waiter.emplace(edge.waiter_tid, edge);

  std::vector<std::vector<WaitEdge>> cycles;
  std::map<int32_t, int32_t> seen_from;  // tid -> where the walk that met it first had begun
  for (const auto& [start, first] : by_waiter) {
    std::vector<WaitEdge> path;
    auto at = by_waiter.find(start);
    while (at != by_waiter.end() && seen_from.emplace(at->first, start).second) {
      path.push_back(at->second);
      at = by_waiter.find(at->second.owner_tid);
    }
    if (at == by_waiter.end() || seen_from[at->first] != start) continue;
    auto begin = std::find(path.begin(), path.end(), at->second);
    if (begin == path.end()) continue;
    path.erase(path.begin(), begin);
    const auto lowest = std::ranges::min_element(path, {}, &WaitEdge::waiter_tid);
    std::rotate(path.begin(), lowest, path.end());
    cycles.push_back(std::move(path));
  }
  return cycles;
}

}  // namespace stackd
