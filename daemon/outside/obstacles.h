// What is in the way of reading a process from outside, by the control that forbids it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/result.h"

namespace stackd {

struct Obstacle {
  enum Effect {
    kNothingIsRead,
    kNoStops,  // threads that run have no stack; all others are read
  };

  Effect effect = kNothingIsRead;
  Code code = Code::kPermissionDenied;
  std::string text;     // a clause: "process 7 belongs to uid 4 and stackctl runs as uid 5"
  std::string way_out;  // a clause: "run stackctl as that user, or as root"
};

// Tries each way of reading, and explains those that are refused; empty: none is. Nothing is stopped for it. `proc` is
// "/proc", or a copy for tests.
std::vector<Obstacle> FindObstacles(const std::string& proc, int32_t pid);

}  // namespace stackd
