#include "daemon/detect/watch/shutdown_detector.h"

#include <utility>

namespace stackd {

std::optional<SigtermWatch::Survivor> SigtermWatch::Look(const SigtermSigns& signs, int64_t now_ns, int64_t after_ns) {
  const bool was_pending = std::exchange(was_pending_, signs.is_pending);
  bool has_come = signs.is_pending && !was_pending;
  // Some ways to take it are not counted: signalfd().
  bool was_taken = was_pending && !signs.is_pending;
  if (signs.taken_count) {
    const bool has_grown = taken_count_ && *taken_count_ != *signs.taken_count;
    taken_count_ = signs.taken_count;
    has_come |= has_grown;
    was_taken |= has_grown;
  }
  if (has_come && told_ns_ == 0) {
    told_ns_ = now_ns;
    has_taken_ = false;
  }
  has_taken_ |= was_taken;
  if (told_ns_ == 0 || now_ns - told_ns_ < after_ns) return std::nullopt;
  return Survivor{std::exchange(told_ns_, 0), has_taken_};
}

}  // namespace stackd
