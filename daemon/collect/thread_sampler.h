// How often threads of one process have run, and what they sleep in, without waking them.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/capture/waits.h"
#include "daemon/collect/agent_process.h"
#include "daemon/collect/agent_ring.h"
#include "daemon/collect/crash_claim.h"

namespace stackd {

// Thread-safe. `gives_way`: ends with kAborted when a capture wants its turn, or the process crashes.
class ThreadSampler {
 public:
  // All must outlive it.
  ThreadSampler(AgentProcess* process, AgentRing* ring, CaptureTurns* turns, const CrashClaim* crash)
      : process_(process), ring_(ring), turns_(turns), crash_(crash) {}

  // From procfs, or where that shows one thread only by the helper. See Collector::ReadSchedStats.
  Result<std::vector<ThreadSchedStat>> ReadSchedStats(bool gives_way);
  // See Collector::SampleWaits.
  Result<std::vector<ThreadWait>> SampleWaits(int64_t deadline_ns, bool gives_way);

 private:
  Result<std::vector<ThreadSchedStat>> AskSchedStats(bool gives_way);
  // With the turn: has the process run a command that is no dump; or says why not, an errno.
  Result<int> Run(uint32_t command, int64_t deadline_ns, bool gives_way, AgentRing::Sinks sinks);
  Result<int> Await(int64_t deadline_ns, bool gives_way);

  AgentProcess* const process_;
  AgentRing* const ring_;
  CaptureTurns* const turns_;
  const CrashClaim* const crash_;
};

}  // namespace stackd
