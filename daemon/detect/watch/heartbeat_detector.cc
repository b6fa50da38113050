#include "daemon/detect/watch/heartbeat_detector.h"

#include <string>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/detect/watch/words.h"

namespace stackd {
namespace {

constexpr int64_t kHeartbeatsNs = 200 * kNsPerMs;
// For a process without heartbeats: it may register one.
constexpr int64_t kNoHeartbeatsNs = 500 * kNsPerMs;
// After a longer pause the machine did not keep time, or the daemon had been stopped. What happened meanwhile counts
// against no process.
constexpr int64_t kLongestPauseNs = kNsPerSecond;

bool IsSame(const Heartbeat& a, const Heartbeat& b) {
  return a.name == b.name && a.tid == b.tid && a.limit_ns == b.limit_ns;
}

const char* InWords(char state) {
  switch (state) {
    case 'R':
      return "runs, or waits for a core";
    case 'S':
      return "sleeps";
    case 'D':
      return "sleeps in the kernel and cannot be woken";
    case 0:
      return "is gone, or cannot be seen";
  }
  return "does not run";
}

}  // namespace

HeartbeatDetector::Verdict HeartbeatDetector::Judge(const Heartbeat& heartbeat, int64_t now_ns,
                                                    const std::function<bool()>& may_ask) {
  const bool is_stopped = process_.IsStopped(0) || process_.IsStopped(heartbeat.tid);
  const Frozen frozen = is_stopped ? Frozen::kYes : freeze_.Ask(now_ns, may_ask);
  if (frozen == Frozen::kNotKnown) return Verdict::kNotKnown;
  if (frozen == Frozen::kNo) return Verdict::kMissed;
  ++process_.counters.stopped;
  return Verdict::kExcused;
}

void HeartbeatDetector::EndSuspicions() {
  for (auto& [number, cell] : cells_) EndSuspicion(&cell.missed);
  cells_.clear();
  looked_ns_ = 0;
}

void HeartbeatDetector::Look(int64_t now_ns, const std::function<bool()>& may_ask) {
  due_ns_ = now_ns + kNoHeartbeatsNs;
  // The process may have had another name, and a rule with it.
  if (process_.RuleFor(RuleTrigger::kHeartbeat) == nullptr) return EndSuspicions();
  const auto heartbeats = process_.probe.Heartbeats(process_.id());
  if (!heartbeats) return;
  const int64_t elapsed_ns = looked_ns_ == 0 ? 0 : now_ns - looked_ns_;
  looked_ns_ = now_ns;
  std::map<uint32_t, Cell> before = std::exchange(cells_, {});
  for (const Heartbeat& heartbeat : *heartbeats) {
    Cell cell{heartbeat};
    auto known = before.find(heartbeat.cell);
    const bool is_known = known != before.end() && IsSame(known->second.heartbeat, heartbeat);
    if (is_known) cell = std::move(before.extract(known).mapped());
    const bool has_beaten = cell.heartbeat.beats != heartbeat.beats;
    if (has_beaten) process_.counters.last_beat_wall_ns = WallNs();
    cell.heartbeat = heartbeat;
    if (has_beaten || heartbeat.beats == 0) {
      EndSuspicion(&cell.missed);
      cell.is_excused = false;
      cell.age_ns = 0;
    } else if (cell.is_excused) {
      cell.is_excused = Judge(heartbeat, now_ns, may_ask) == Verdict::kExcused;
    } else if (is_known && elapsed_ns <= kLongestPauseNs) {
      cell.age_ns += elapsed_ns;
    }
    if (cell.missed == nullptr && cell.age_ns > heartbeat.limit_ns) {
      const Verdict verdict = Judge(heartbeat, now_ns, may_ask);
      cell.is_excused = verdict == Verdict::kExcused;
      if (verdict == Verdict::kMissed) cell.missed = Suspect(cell, now_ns);
      if (cell.is_excused) cell.age_ns = 0;
    }
    cells_.emplace(heartbeat.cell, std::move(cell));
  }
  for (auto& [number, cell] : before) EndSuspicion(&cell.missed);
  if (!cells_.empty()) due_ns_ = now_ns + kHeartbeatsNs;
}

SharedSuspicion HeartbeatDetector::Suspect(const Cell& cell, int64_t now_ns) const {
  const Heartbeat& heartbeat = cell.heartbeat;
  ++process_.counters.heartbeats_missed;
  HangCapture hang{.cause = HangCause::kHeartbeatMissed,
                   .explanation = "the heartbeat \"" + heartbeat.name + "\" has not come for " +
                                  DurationInWords(cell.age_ns) + "; its limit is " + DurationInWords(heartbeat.limit_ns) +
                                  "; its " + ThreadInWords(heartbeat.tid) + " " +
                                  InWords(process_.probe.StateOf(process_.id(), heartbeat.tid)),
                   .tid = heartbeat.tid,
                   .heartbeat = heartbeat.name,
                   .duration_ns = cell.age_ns};
  std::string subject = "heartbeat " + heartbeat.name + " " + std::to_string(heartbeat.cell);
  return process_.Suspect(std::move(hang), std::move(subject), RuleTrigger::kHeartbeat, now_ns);
}

}  // namespace stackd
