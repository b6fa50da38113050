#include "daemon/fingerprint/recursion.h"

#include <algorithm>
#include <cmath>

namespace stackd {
namespace {

constexpr size_t kMaxPeriod = 8;
constexpr size_t kMinTurns = 8;
// What a process claims of its stack may be any distance; no stack has more frames.
constexpr double kMaxTurns = 1e10;

class RecursionFinder {
 public:
  RecursionFinder(std::span<const XXH128_hash_t> keys, const NativeStack& native)
      : keys_(keys),
        frames_(native.frames),
        // Without a gap it is where there are no frames.
        gap_(native.omitted_bytes > 0 ? native.omitted_before : keys.size()) {}

  std::vector<Recursion> Run() const {
    std::vector<Recursion> found;
    for (size_t begin = 0; begin < keys_.size();) {
      const Recursion recursion = At(begin);
      if (recursion.period == 0) {
        ++begin;
        continue;
      }
      found.push_back(recursion);
      begin = recursion.end;
    }
    return found;
  }

 private:
  bool Equal(size_t a, size_t b) const { return XXH128_isEqual(keys_[a], keys_[b]) != 0; }

  // With period 0 if there is none.
  Recursion At(size_t begin) const {
    const size_t limit = begin < gap_ ? gap_ : keys_.size();
    for (size_t period = 1; period <= kMaxPeriod && begin + period * kMinTurns <= limit; ++period) {
      size_t end = begin + period;
      while (end < limit && Equal(end, end - period)) ++end;
      const size_t turns = (end - begin) / period;
      if (turns < kMinTurns) continue;
      Recursion recursion{begin, begin + turns * period, period, static_cast<int64_t>(turns)};
      if (end == gap_) ContinueBehindGap(&recursion);
      return recursion;
    }
    return {};
  }

  void ContinueBehindGap(Recursion* recursion) const {
    // The frames behind the gap may begin anywhere in a turn.
    size_t best_end = gap_;
    for (size_t phase = 0; phase < recursion->period; ++phase) {
      size_t end = gap_;
      while (end < keys_.size() && Equal(end, recursion->begin + (phase + end - gap_) % recursion->period)) ++end;
      const size_t of_begun_turn = (phase + end - gap_) % recursion->period;
      if (end - gap_ >= recursion->period) best_end = std::max(best_end, end - of_begun_turn);
    }
    if (best_end == gap_) return;
    const size_t first_turn_end = recursion->begin + recursion->period - 1;
    // The CFA of the last frame before the gap may not have been found.
    const size_t measured_turns = recursion->turns - 2;
    const double measured_bytes = Distance(first_turn_end, first_turn_end + measured_turns * recursion->period);
    const double whole_bytes = Distance(first_turn_end, best_end - 1);
    if (measured_bytes <= 0 || whole_bytes <= measured_bytes) return;
    const double turn_bytes = measured_bytes / static_cast<double>(measured_turns);
    if (whole_bytes / turn_bytes > kMaxTurns) return;
    recursion->turns = 1 + std::llround(whole_bytes / turn_bytes);
    recursion->end = best_end;
  }

  // From one frame's CFA to that of one farther out.
  double Distance(size_t from, size_t to) const {
    return static_cast<double>(static_cast<int64_t>(frames_[to].cfa_avma - frames_[from].cfa_avma));
  }

  const std::span<const XXH128_hash_t> keys_;
  const std::vector<NativeFrame>& frames_;
  const size_t gap_;
};

}  // namespace

std::vector<Recursion> FindRecursion(std::span<const XXH128_hash_t> keys, const NativeStack& native) {
  return RecursionFinder(keys, native).Run();
}

}  // namespace stackd
