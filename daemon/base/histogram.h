// How long things took, counted where they happen: any thread, no lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace stackd {

class DurationHistogram {
 public:
  // Upper bounds of the buckets but for the last, which has none: 100 us to 10 s.
  static constexpr std::array<int64_t, 16> kBoundsNs = {
      100'000,    250'000,     500'000,     1'000'000,   2'500'000,     5'000'000,     10'000'000,    25'000'000,
      50'000'000, 100'000'000, 250'000'000, 500'000'000, 1'000'000'000, 2'500'000'000, 5'000'000'000, 10'000'000'000};

  void Observe(int64_t duration_ns) {
    size_t bucket = 0;
    while (bucket < kBoundsNs.size() && duration_ns > kBoundsNs[bucket]) ++bucket;
    counts_[bucket].fetch_add(1, std::memory_order_relaxed);
    sum_ns_.fetch_add(duration_ns, std::memory_order_relaxed);
  }

  int64_t count(size_t bucket) const { return counts_[bucket].load(std::memory_order_relaxed); }
  int64_t sum_ns() const { return sum_ns_.load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<int64_t>, kBoundsNs.size() + 1> counts_{};
  std::atomic<int64_t> sum_ns_{0};
};

}  // namespace stackd
