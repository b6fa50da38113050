// What the detectors of one process share: the process, the rules that apply to it, and where suspicions go.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "daemon/capture/capture.h"
#include "daemon/detect/rules/rules.h"
#include "daemon/detect/watch/probe.h"
#include "daemon/detect/watch/suspicion.h"

namespace stackd {

// What looks have cost and found, for all processes.
struct DetectCounters {
  std::atomic<int64_t> schedstat_looks{0};
  std::atomic<int64_t> samples{0};
  std::atomic<int64_t> samples_failed{0};
  std::atomic<int64_t> heartbeats_missed{0};
  std::atomic<int64_t> deadlocks{0};
  std::atomic<int64_t> spins{0};
  std::atomic<int64_t> stalls{0};
  std::atomic<int64_t> shutdown_timeouts{0};
  std::atomic<int64_t> sigterm_looks{0};
  // Nothing was held against a process that did not run as a whole: stopped, frozen, or at a breakpoint.
  std::atomic<int64_t> stopped{0};
  // Since 1970: when a heartbeat was last seen to beat, of any process; 0: never.
  std::atomic<int64_t> last_beat_wall_ns{0};
};

class WatchedProcess {
 public:
  using Report = std::function<void(SharedSuspicion)>;

  WatchedProcess(ProcessProbe* probe, const Rules* rules, DetectCounters* counters, Report report)
      : probe(*probe), counters(*counters), rules_(rules), report_(std::move(report)) {}

  // Finds the rules anew where the name has changed.
  void SetDescription(ProcessDescription description);
  const std::string& id() const { return description_.id; }
  // nullptr: no rule asks for it.
  const Rule* RuleFor(RuleTrigger trigger) const { return rule_for_[static_cast<size_t>(trigger)].get(); }
  // `tid` 0: the process.
  bool IsStopped(int32_t tid) const;
  // Reports a hang that a rule asks for.
  SharedSuspicion Suspect(HangCapture hang, std::string subject, RuleTrigger trigger, int64_t now_ns,
                          bool is_inferred = false) const;

  ProcessProbe& probe;
  DetectCounters& counters;

 private:
  const Rules* const rules_;
  const Report report_;
  ProcessDescription description_;
  std::array<std::shared_ptr<const Rule>, kRuleTriggers> rule_for_;
};

// Marks as over, and forgets, what was suspected; nullptr: nothing was.
inline void EndSuspicion(SharedSuspicion* suspicion) {
  if (*suspicion != nullptr) (*suspicion)->over = true;
  suspicion->reset();
}

}  // namespace stackd
