// Why a process died, as data and in one sentence.
#pragma once

#include "daemon/collect/capture.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Everything of a Crash but its fingerprint. `capture.crash` is set; `stack` is that of the thread that crashed, with names
// and recursion folded, or nullptr.
v1::Crash ExplainCrash(const Capture& capture, const v1::Stack* stack);

}  // namespace stackd
