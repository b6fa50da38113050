// Rate limit: a burst at once, and so many a second after that.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

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

  bool IsFull(int64_t now_ns) const { return TokensAt(now_ns) >= burst_; }

 private:
  double TokensAt(int64_t now_ns) const {
    if (now_ns <= filled_ns_) return tokens_;
    const double since_s = static_cast<double>(now_ns - filled_ns_) / kNsPerSecond;
    return std::min(burst_, tokens_ + since_s * per_second_);
  }

  void Refill(int64_t now_ns) {
    tokens_ = TokensAt(now_ns);
    filled_ns_ = std::max(filled_ns_, now_ns);
  }

  double per_second_;
  double burst_;
  double tokens_;
  int64_t filled_ns_ = 0;
};

// Makes room in a map of buckets by source: forgets those that are full, and all if that is not enough. `bucket_of` gives
// the bucket of an entry's value.
template <typename Map, typename BucketOf>
void BoundSources(Map* sources, size_t max_sources, int64_t now_ns, BucketOf bucket_of) {
  if (sources->size() < max_sources) return;
  std::erase_if(*sources, [&](const auto& entry) { return bucket_of(entry.second).IsFull(now_ns); });
  if (sources->size() >= max_sources) sources->clear();
}

}  // namespace stackd
