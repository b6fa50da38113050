#include "daemon/base/loop_watch.h"

#include <algorithm>

namespace stackd {
namespace {

struct LoopFacts {
  std::string_view name;
  bool holds_up_all;
};

constexpr std::array<LoopFacts, kLoops> kFacts = {{
    {"agents", true},
    {"dump_requests", false},
    {"modules", false},
    {"crashes", true},
    {"crash_captures", false},
    {"spool", false},
    {"detector", true},
    {"hang_dumps", false},
    {"finisher", false},
    {"symbol_names", true},
    {"symbol_lines", true},
    {"store", true},
}};

}  // namespace

std::string_view NameOf(Loop loop) { return kFacts[static_cast<size_t>(loop)].name; }

LoopWatch& DaemonLoops() {
  // Never destroyed: threads that were given up on use it until the process ends.
  static LoopWatch* const watch = new LoopWatch;
  return *watch;
}

LoopWatch::Turn::Turn(Loop loop) : Turn(&DaemonLoops(), loop) {}

LoopWatch::Turn::Turn(LoopWatch* watch, Loop loop) : watch_(watch), loop_(loop) {
  const int64_t now_ns = watch->clock_ns_();
  const std::lock_guard lock(watch->mutex_);
  std::list<int64_t>& turns = watch->beats_ns_[static_cast<size_t>(loop)];
  beat_ns_ = turns.insert(turns.end(), now_ns);
}

LoopWatch::Turn::~Turn() {
  const std::lock_guard lock(watch_->mutex_);
  watch_->beats_ns_[static_cast<size_t>(loop_)].erase(beat_ns_);
}

void LoopWatch::Turn::Beat() {
  const int64_t now_ns = watch_->clock_ns_();
  const std::lock_guard lock(watch_->mutex_);
  *beat_ns_ = now_ns;
}

int64_t LoopWatch::AgeNs(Loop loop) const {
  const int64_t now_ns = clock_ns_();
  const std::lock_guard lock(mutex_);
  const std::list<int64_t>& turns = beats_ns_[static_cast<size_t>(loop)];
  return turns.empty() ? 0 : std::max<int64_t>(0, now_ns - *std::ranges::min_element(turns));
}

std::string LoopWatch::Stuck(bool that_hold_up_all) const {
  std::string sentences;
  for (size_t i = 0; i < kLoops; ++i) {
    if (that_hold_up_all && !kFacts[i].holds_up_all) continue;
    const int64_t age_ns = AgeNs(static_cast<Loop>(i));
    if (age_ns < kStuckNs) continue;
    if (!sentences.empty()) sentences += "; ";
    sentences += "the loop \"" + std::string(kFacts[i].name) + "\" of stackd has been stuck for " +
                 std::to_string(age_ns / kNsPerSecond) + " s";
  }
  return sentences;
}

}  // namespace stackd
