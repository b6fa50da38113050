// One walk over a thread's frames of runtimes, from the agent's side to what the daemon reads.
#pragma once

#include <string.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "agent/tests/last_thread.h"

extern "C" {
#include "agent/ring/ring_writer.h"
#include "agent/runtimes/runtimes.h"
}

namespace stackd {

// `registers`: STACKD_REGISTERS of them, which outlive the result.
inline stackd_managed_thread ThreadToWalk(uint64_t thread_self, const uint64_t* registers, uint64_t now_ns) {
  return {.pid = getpid(),
          .tid = static_cast<uint32_t>(getpid()),
          .thread_self = thread_self,
          .regs = registers,
          .stack_start = 0,
          .stack_end = 0,
          .budget = nullptr,
          .pages = nullptr,
          .begin_ns = now_ns,
          .begin_cpu_ns = stackd_clock_ns(CLOCK_THREAD_CPUTIME_ID)};
}

// `agent_ring` is the agent's view of `ring`.
inline std::vector<ManagedTrace> WalkThread(uint64_t thread_self, uint64_t now_ns, const stackd_ring* agent_ring,
                                            Ring* ring) {
  stackd_ring_writer writer;
  auto* record = static_cast<stackd_thread_record*>(
      stackd_ring_begin(&writer, agent_ring, STACKD_RECORD_THREAD, sizeof(stackd_thread_record), 1));
  EXPECT_NE(record, nullptr);
  memset(&record->seq, 0, sizeof(*record) - offsetof(stackd_thread_record, seq));
  record->seq = 1;
  record->tid = 1;
  const uint64_t registers[STACKD_REGISTERS] = {};
  stackd_managed_thread thread = ThreadToWalk(thread_self, registers, now_ns);
  stackd_managed_write(&writer, &thread, &record->managed_words);
  stackd_ring_commit(&writer);
  LastThread listener;
  RingReader(ring).Drain(&listener);
  return listener.thread ? listener.thread->managed : std::vector<ManagedTrace>{};
}

}  // namespace stackd
