// What makes two crashes the same one.
#pragma once

#include <string>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Sets fingerprint, fingerprint_rule and fingerprint_frames of `crash`, whose other fields are set. `stack` is that of the
// thread that crashed, folded, or nullptr. `executable` stands for a crash of which no frame is known.
void AddCrashFingerprint(const v1::Stack* stack, const std::string& executable, v1::Crash* crash);

}  // namespace stackd
