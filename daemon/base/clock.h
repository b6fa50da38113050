// Clocks, with the unit in the name.
#pragma once

#include <time.h>

#include <cstdint>

namespace stackd {

inline constexpr int64_t kNsPerSecond = 1'000'000'000;
inline constexpr int64_t kNsPerMs = 1'000'000;

inline int64_t ClockNs(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * kNsPerSecond + now.tv_nsec;
}

// For deadlines and for comparison with times of an agent on the same kernel.
inline int64_t MonotonicNs() { return ClockNs(CLOCK_MONOTONIC); }
// For times that are shown.
inline int64_t WallNs() { return ClockNs(CLOCK_REALTIME); }

}  // namespace stackd
