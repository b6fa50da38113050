// Why a process died, as data and in one sentence.
#pragma once

#include <cstdint>

#include "daemon/capture/capture.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Fills in a Crash but for its fingerprint. `capture.crash` is set. `stack` is the crashing thread's, with names and
// recursion folded, or nullptr. `frame_begin_avma` is the canonical frame address of its innermost frame, or 0.
v1::Crash ExplainCrash(const Capture& capture, const v1::Stack* stack, uint64_t frame_begin_avma = 0);

}  // namespace stackd
