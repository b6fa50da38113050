#include "daemon/collect/heartbeats.h"

#include <string.h>

#include <algorithm>

#include "daemon/base/clock.h"
#include "daemon/base/printable.h"

namespace stackd {
namespace {

// agent.h: no limit is shorter. A process that claims so would be late at every look.
constexpr uint32_t kMinLimitMs = 10;

// What the process writes while it is copied may be torn; it is never read twice.
stackd_heartbeat_cell CopyOnce(const stackd_heartbeat_cell& shared) {
  constexpr size_t kWords = sizeof(shared) / sizeof(uint64_t);
  uint64_t words[kWords];
  const auto* from = reinterpret_cast<const uint64_t*>(&shared);
  for (size_t i = 0; i < kWords; i++) words[i] = __atomic_load_n(from + i, __ATOMIC_RELAXED);
  stackd_heartbeat_cell cell;
  memcpy(&cell, words, sizeof(cell));
  return cell;
}

}  // namespace

std::vector<Heartbeat> ReadHeartbeats(const Ring& ring) {
  std::vector<Heartbeat> heartbeats;
  for (uint32_t i = 0; i < STACKD_MAX_HEARTBEATS; i++) {
    const stackd_heartbeat_cell& shared = ring.heartbeat(i);
    if (__atomic_load_n(&shared.limit_ms, __ATOMIC_ACQUIRE) == 0) continue;
    const stackd_heartbeat_cell cell = CopyOnce(shared);
    if (cell.limit_ms == 0) continue;
    const std::string_view name(cell.name, strnlen(cell.name, sizeof(cell.name)));
    heartbeats.push_back({.name = PrintableText(name),
                          .tid = static_cast<int32_t>(cell.tid),
                          .limit_ns = std::max(cell.limit_ms, kMinLimitMs) * kNsPerMs,
                          .beats = cell.beats,
                          .cell = i});
  }
  return heartbeats;
}

}  // namespace stackd
