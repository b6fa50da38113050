// The time from one sample of a process to the next.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "daemon/base/clock.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

class SamplePeriod {
 public:
  // `every_ns` is what the user has asked for. Without it, the period is such that samples take the process no more than
  // one part in kMostShare of a processor.
  explicit SamplePeriod(std::optional<int64_t> every_ns)
      : every_ns_(every_ns.value_or(kShortestNs)), is_free_(!every_ns.has_value()) {}

  int64_t every_ns() const { return every_ns_; }

  // What the agent's own thread has used between two samples is what one of them costs.
  void Learn(const v1::Dump& sample) {
    const int64_t agent_ns = AgentTimeNs(sample);
    if (is_free_ && agent_ns_ > 0) every_ns_ = std::max(every_ns_, (agent_ns - agent_ns_) * kMostShare);
    agent_ns_ = agent_ns;
  }

  static constexpr int64_t kShortestNs = 100 * kNsPerMs;
  static constexpr int64_t kMostShare = 20;

 private:
  // 0: the process has no such thread.
  static int64_t AgentTimeNs(const v1::Dump& sample) {
    for (const v1::Thread& thread : sample.threads()) {
      if (thread.is_agent()) return thread.cpu_time().seconds() * kNsPerSecond + thread.cpu_time().nanos();
    }
    return 0;
  }

  int64_t every_ns_;
  const bool is_free_;
  int64_t agent_ns_ = 0;  // of the sample before
};

}  // namespace stackd
