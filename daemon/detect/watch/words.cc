#include "daemon/detect/watch/words.h"

#include <cstdio>

#include "daemon/base/clock.h"

namespace stackd {

std::string DurationInWords(int64_t ns) {
  char text[32];
  if (ns < kNsPerSecond) {
    snprintf(text, sizeof(text), "%lld ms", static_cast<long long>(ns / kNsPerMs));
  } else if (ns < 10 * kNsPerSecond && ns % kNsPerSecond >= 50 * kNsPerMs) {
    snprintf(text, sizeof(text), "%.1f s", static_cast<double>(ns) / kNsPerSecond);
  } else if (ns < 600 * kNsPerSecond) {
    snprintf(text, sizeof(text), "%lld s", static_cast<long long>(ns / kNsPerSecond));
  } else {
    snprintf(text, sizeof(text), "%lld min", static_cast<long long>(ns / kNsPerSecond / 60));
  }
  return text;
}

std::string ThreadInWords(int32_t tid) { return "thread " + std::to_string(tid); }

}  // namespace stackd
