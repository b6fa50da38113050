// Counts for the whole collector, since start.
#pragma once

#include <atomic>
#include <cstdint>

namespace stackd {

struct CollectorCounters {
  std::atomic<int64_t> captures{0};
  std::atomic<int64_t> wait_samples{0};
  std::atomic<int64_t> ring_records{0};
  std::atomic<int64_t> ring_corrupt_records{0};
  std::atomic<int64_t> ring_late_records{0};
  std::atomic<int64_t> ring_dropped_no_slot{0};
  std::atomic<int64_t> ring_dropped_late{0};
  std::atomic<int64_t> ring_dropped_agent_fault{0};
  std::atomic<int64_t> ring_dropped_crash{0};
  std::atomic<int64_t> agents_accepted{0};
  std::atomic<int64_t> agents_rejected{0};
  std::atomic<int64_t> agents_displaced{0};
  std::atomic<int64_t> dump_requests_refused{0};
  std::atomic<int64_t> crashes_taken{0};
  // Crashes taken of processes whose own handler had been called, and which ended.
  std::atomic<int64_t> crashes_tentative{0};
  // Crashes taken without the other threads, because too many crashes came at once.
  std::atomic<int64_t> crashes_hurried{0};
  // Records of a process that had said already how it died.
  std::atomic<int64_t> crashes_repeated{0};
  std::atomic<int64_t> spool_taken{0};
  std::atomic<int64_t> spool_refused{0};
  std::atomic<int64_t> spool_set_aside{0};
};

}  // namespace stackd
