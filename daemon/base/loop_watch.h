// Which of the daemon's long-lived loops are at work, and for how long without a sign of life.
//
// A loop that waits for work has age 0. One that works says so by a Turn, for each piece of work that ends within seconds.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <string_view>

#include "daemon/base/clock.h"

namespace stackd {

enum class Loop : uint8_t {
  kAgents,         // connections and messages of processes
  kDumpRequests,   // of processes for themselves
  kModules,        // reads ahead what processes have mapped
  kCrashes,        // takes crashes out of rings
  kCrashCaptures,  // the rest of a crashed process, until it is stored
  kSpool,
  kDetector,
  kHangDumps,
  kFinisher,     // unwinds and names stored crashes
  kSymbolNames,  // each with a worker
  kSymbolLines,
  kStore,
};
inline constexpr size_t kLoops = 12;

std::string_view NameOf(Loop loop);

// Thread-safe.
class LoopWatch {
 public:
  // No slow machine takes so long for one piece of work.
  static constexpr int64_t kStuckNs = 60 * kNsPerSecond;

  explicit LoopWatch(int64_t (*clock_ns)() = MonotonicNs) : clock_ns_(clock_ns) {}

  // One piece of work, as long as this lives. Several threads may have turns of one loop.
  class Turn {
   public:
    Turn(LoopWatch* watch, Loop loop);
    explicit Turn(Loop loop);  // of DaemonLoops()
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    // A sign of life within a long piece of work.
    void Beat();

   private:
    LoopWatch* const watch_;
    const Loop loop_;
    std::list<int64_t>::iterator beat_ns_;
  };

  // Since the last sign of life of the oldest turn; 0: there is none.
  int64_t AgeNs(Loop loop) const;

  // Names the stuck loops, a sentence for each; none: "". `that_hold_up_all` leaves out loops that one process can hold up,
  // for example with a file that does not answer. Such a loop must not have the daemon ended.
  std::string Stuck(bool that_hold_up_all) const;

 private:
  int64_t (*const clock_ns_)();
  mutable std::mutex mutex_;
  std::array<std::list<int64_t>, kLoops> beats_ns_;  // of the turns
};

// The loops of this process.
LoopWatch& DaemonLoops();

}  // namespace stackd
