// How the time of a dump is divided.
#pragma once

#include <algorithm>
#include <cstdint>

#include "daemon/base/clock.h"

namespace stackd {

// The part of the time of a dump that is kept for what comes after the capture.
inline int64_t NamingTimeNs(int64_t budget_ns) { return std::clamp<int64_t>(budget_ns / 2, 0, 5 * kNsPerSecond); }

}  // namespace stackd
