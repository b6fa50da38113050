// The ring that one agent shares with the daemon: commands go in, records come out.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>

#include "daemon/base/clock.h"
#include "daemon/capture/counters.h"
#include "daemon/collect/agent_process.h"
#include "daemon/collect/capture_request.h"
#include "daemon/collect/crash_claim.h"
#include "daemon/collect/wait_sample.h"
#include "daemon/ring/recording.h"
#include "daemon/ring/ring.h"
#include "daemon/ring/ring_reader.h"

namespace stackd {

// Turns of those who command the agent: one at a time, and captures before samples. Thread-safe.
class CaptureTurns {
 public:
  using Turn = std::unique_lock<std::timed_mutex>;

  // As long as it lives no sample begins, and one that runs ends.
  class Wanted {
   public:
    explicit Wanted(CaptureTurns* turns) : turns_(turns) { turns_->wanted_.fetch_add(1); }
    ~Wanted() { turns_->wanted_.fetch_sub(1); }
    Wanted(const Wanted&) = delete;
    Wanted& operator=(const Wanted&) = delete;

   private:
    CaptureTurns* const turns_;
  };

  // Waits for the turn; owns nothing if it does not come by the deadline.
  Turn Take(int64_t deadline_ns) {
    Turn turn(mutex_, std::defer_lock);
    const int64_t left_ns = std::max<int64_t>(0, deadline_ns - MonotonicNs());
    [[maybe_unused]] const bool taken = turn.try_lock_for(std::chrono::nanoseconds(left_ns));
    return turn;
  }
  // Whether a capture runs, or waits for its turn.
  bool is_wanted() const { return wanted_.load() > 0; }

 private:
  std::timed_mutex mutex_;
  std::atomic<int> wanted_{0};
};

class AgentRing {
 public:
  // What gets the records of a command; nullptr: they are not expected.
  struct Sinks {
    Recording* recording = nullptr;
    WaitSample* sample = nullptr;
    SchedStatLook* schedstat_look = nullptr;
  };
  // How far the process is with the command.
  struct Progress {
    uint32_t doorbell = 0;
    bool is_connected = false;
    bool has_begun = false;
    bool is_done = false;
    int failure = 0;  // if it is done: why it could not be run, an errno; or 0
    uint32_t listed_count = 0;
  };

  // All must outlive it. A crash goes to `crash`, whatever is awaited.
  AgentRing(Ring* ring, const AgentProcess* process, CrashClaim* crash, CollectorCounters* counters);

  // The thread that has the turn (CaptureTurns).
  // The number of the next command.
  uint32_t next_seq() const { return seq_ + 1; }
  // Sends a command whose records `sinks` gets.
  void Begin(uint32_t command, const CaptureRequest& request, Sinks sinks);
  // Drains the ring, and says how far the process was before that.
  Progress Poll();
  // Waits until the doorbell is another one, for a moment at most.
  void Wait(uint32_t doorbell);
  // Cancels what is left of the command, and counts what the process dropped.
  void End();

  // Any thread. Takes all records that are ready.
  void Drain();
  // Once the process has ended, and if it has not crashed so far: takes the newest crash that it did not take back.
  void TakeTentativeCrash();
  void Interrupt() { reader_.Interrupt(); }

 private:
  class Listener;

  void CountDrops();

  Ring* const ring_;
  const AgentProcess* const process_;
  CrashClaim* const crash_;
  CollectorCounters* const counters_;

  // The thread that has the turn uses these.
  uint32_t seq_ = 0;
  uint64_t dropped_seen_[STACKD_DROP_REASONS] = {};

  std::mutex mutex_;  // guards sinks_, and the reader but for its waits
  RingReader reader_;
  Sinks sinks_;
};

}  // namespace stackd
