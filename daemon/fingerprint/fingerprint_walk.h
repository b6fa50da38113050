// Which frames of a stack the fingerprint of a crash or of a hang is made of.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Where the part of the stack begins that is to blame.
struct FingerprintStart {
  enum class At : uint8_t {
    kFault,              // behind abort, raise and the like
    kWildJump,           // the innermost frame is where chance led
    kRecursion,          // one turn of it
    kReportOfException,  // the frame that names the exception
    kWait,               // behind the C library's functions
    kLoop,               // loop_function
  };
  At at = At::kFault;
  std::string loop_function;
};

using FingerprintFrames = google::protobuf::RepeatedPtrField<v1::FingerprintFrame>;

// What the used frames of `stack`, folded or not, are known by, innermost first: at most 8. `looked_at` gets the used ones,
// and the skipped ones with their rules.
std::vector<std::string> FramesOfFingerprint(const v1::Stack& stack, const FingerprintStart& start,
                                             FingerprintFrames* looked_at);

// 32 hex digits: XXH3, 128 bits, of the rule's name and the length (8 bytes, little-endian) and bytes of each text.
std::string FingerprintOfTexts(std::string_view rule, std::span<const std::string> texts);

}  // namespace stackd
