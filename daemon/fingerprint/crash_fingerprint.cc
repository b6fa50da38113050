#include "daemon/fingerprint/crash_fingerprint.h"

#include <string_view>
#include <vector>

#include "daemon/fingerprint/fingerprint_walk.h"

namespace stackd {
namespace {

// Raised with any change of what is used or hashed: fingerprints of different rules do not compare.
constexpr std::string_view kRule = "crash-1";

FingerprintStart::At StartOf(v1::Crash::Cause cause) {
  switch (cause) {
    case v1::Crash::STACK_OVERFLOW:
      return FingerprintStart::At::kRecursion;
    case v1::Crash::UNCAUGHT_EXCEPTION:
      return FingerprintStart::At::kReportOfException;
    case v1::Crash::BAD_JUMP:
      return FingerprintStart::At::kWildJump;
    default:
      return FingerprintStart::At::kFault;
  }
}

}  // namespace

void AddCrashFingerprint(const v1::Stack* stack, const std::string& executable, v1::Crash* crash) {
  crash->set_fingerprint_rule(std::string(kRule));
  std::vector<std::string> texts;
  if (stack != nullptr) {
    texts = FramesOfFingerprint(*stack, {.at = StartOf(crash->cause())}, crash->mutable_fingerprint_frames());
  }
  if (texts.empty()) texts = {executable, crash->signal_name(), crash->code_name()};
  crash->set_fingerprint(FingerprintOfTexts(kRule, texts));
}

}  // namespace stackd
