// Rate limit: a burst at once, and so many a second after that.
#pragma once

#include <algorithm>
#include <cstdint>

#include "daemon/base/clock.h"

namespace stackd {

class TokenBucket {
 public:
  TokenBucket(double per_second, double burst) : per_second_(per_second), burst_(burst), tokens_(burst) {}

  // 0 if there was a token, which is taken; else how long until there is one.
  int64_t TakeOrWaitNs(int64_t now_ns) {
    Refill(now_ns);
    if (tokens_ >= 1) {
      --tokens_;
      return 0;
    }
    return static_cast<int64_t>((1 - tokens_) / per_second_ * kNsPerSecond) + 1;
  }

  bool IsFull(int64_t now_ns) {
    Refill(now_ns);
    return tokens_ >= burst_;
  }

 private:
  void Refill(int64_t now_ns) {
    if (now_ns <= filled_ns_) return;
    const double since_s = static_cast<double>(now_ns - filled_ns_) / kNsPerSecond;
    tokens_ = std::min(burst_, tokens_ + since_s * per_second_);
    filled_ns_ = now_ns;
  }

  double per_second_;
  double burst_;
  double tokens_;
  int64_t filled_ns_ = 0;
};

}  // namespace stackd
