// What makes two hangs the same one.
#pragma once

#include <string>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Sets fingerprint, fingerprint_rule and fingerprint_frames of the hang of `dump`, whose other fields are set, findings
// included. `loop_function`: what a thread that spins does not leave; else empty.
void AddHangFingerprint(const std::string& loop_function, v1::Dump* dump);

}  // namespace stackd
