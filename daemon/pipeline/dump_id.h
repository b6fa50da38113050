// The last part of a dump's name: "20261121T031415926Z-1".
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include "daemon/base/clock.h"

namespace stackd {

// Gives ids that sort by time as text and never repeat, also when the clock is set back. One thread at a time.
class DumpIds {
 public:
  std::string Next(int64_t wall_ns) {
    int64_t wall_ms = std::max(wall_ns / kNsPerMs, last_ms_);
    sequence_ = wall_ms == last_ms_ ? sequence_ + 1 : 1;
    last_ms_ = wall_ms;
    time_t seconds = wall_ms / 1000;
    tm utc;
    gmtime_r(&seconds, &utc);
    char text[64];
    size_t size = strftime(text, sizeof(text), "%Y%m%dT%H%M%S", &utc);
    snprintf(text + size, sizeof(text) - size, "%03dZ-%u", static_cast<int>(wall_ms % 1000), sequence_);
    return text;
  }

 private:
  int64_t last_ms_ = 0;
  unsigned sequence_ = 0;
};

}  // namespace stackd
