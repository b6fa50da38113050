#include "daemon/detect/watch/heartbeat_detector.h"

#include <utility>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

// After a longer pause the machine did not keep time, or the daemon had been stopped. What happened meanwhile counts
// against no process.
constexpr int64_t kLongestPauseNs = kNsPerSecond;

bool IsSame(const Heartbeat& a, const Heartbeat& b) {
  return a.name == b.name && a.tid == b.tid && a.limit_ns == b.limit_ns;
}

}  // namespace

HeartbeatWatch::Events HeartbeatWatch::Look(std::span<const Heartbeat> heartbeats, int64_t elapsed_ns,
                                            const std::function<Verdict(const Heartbeat&)>& judge) {
  const int64_t watched_ns = elapsed_ns <= kLongestPauseNs ? elapsed_ns : 0;
  Events events;
  std::map<uint32_t, Cell> before = std::exchange(cells_, {});
  for (const Heartbeat& heartbeat : heartbeats) {
    Cell cell{heartbeat};
    auto known = before.find(heartbeat.cell);
    const bool is_known = known != before.end() && IsSame(known->second.heartbeat, heartbeat);
    if (is_known) {
      cell = std::move(known->second);
      before.erase(known);
    }
    const bool has_beaten = cell.heartbeat.beats != heartbeat.beats;
    events.have_beaten |= has_beaten;
    cell.heartbeat = heartbeat;
    if (has_beaten || heartbeat.beats == 0) {
      if (cell.is_missed) events.resumed.push_back(heartbeat);
      cell.is_missed = false;
      cell.is_excused = false;
      cell.age_ns = 0;
    } else if (cell.is_excused) {
      cell.is_excused = judge(heartbeat) == Verdict::kExcused;
    } else if (is_known) {
      cell.age_ns += watched_ns;
    }
    if (!cell.is_missed && cell.age_ns > heartbeat.limit_ns) {
      const Verdict verdict = judge(heartbeat);
      cell.is_missed = verdict == Verdict::kMissed;
      cell.is_excused = verdict == Verdict::kExcused;
      if (cell.is_missed) events.missed.push_back({heartbeat, cell.age_ns});
      if (cell.is_excused) cell.age_ns = 0;
    }
    cells_.emplace(heartbeat.cell, std::move(cell));
  }
  for (auto& [number, cell] : before) {
    if (cell.is_missed) events.resumed.push_back(std::move(cell.heartbeat));
  }
  return events;
}

}  // namespace stackd
