// All that is known of one process: its heartbeats, its threads, and the detectors that judge them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "daemon/capture/capture.h"
#include "daemon/detect/rules/rules.h"
#include "daemon/detect/watch/deadlock_detector.h"
#include "daemon/detect/watch/freeze_probe.h"
#include "daemon/detect/watch/goroutine_detector.h"
#include "daemon/detect/watch/heartbeat_detector.h"
#include "daemon/detect/watch/inferred_deadlock_detector.h"
#include "daemon/detect/watch/lock_watch.h"
#include "daemon/detect/watch/probe.h"
#include "daemon/detect/watch/shutdown_detector.h"
#include "daemon/detect/watch/spin_detector.h"
#include "daemon/detect/watch/stall_detector.h"
#include "daemon/detect/watch/thread_watch.h"
#include "daemon/detect/watch/watched_process.h"

namespace stackd {

// Times in CLOCK_MONOTONIC of the caller's; not thread-safe.
class ProcessWatch {
 public:
  // `report` gets each suspicion once.
  ProcessWatch(ProcessProbe* probe, const Rules* rules, DetectCounters* counters, WatchedProcess::Report report)
      : process_(probe, rules, counters, std::move(report)) {}
  // Ends what was suspected.
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  void SetDescription(ProcessDescription description) { process_.SetDescription(std::move(description)); }
  // These have due times of their own.
  HeartbeatDetector& heartbeats() { return heartbeats_; }
  ShutdownDetector& shutdown() { return shutdown_; }
  // When the next look at threads is due.
  int64_t threads_due_ns() const { return threads_due_ns_; }
  // False: it left the last question of a look at heartbeats without an answer, and took its whole time.
  bool answers() const { return freeze_.answers(); }

  // `cpu_clock` gives the CPU time of the caller; `stretch` is a factor for the time to the next look, 1 or more.
  void LookAtThreads(int64_t now_ns, const std::function<int64_t()>& cpu_clock, int64_t stretch);

  // Notes that `captures` are under way or just ended: the threads run for these and for nothing else.
  void Disturb(int captures) {
    disturbed_looks_ = kDisturbedLooks;
    captures_ += captures;
  }
  std::map<int32_t, ThreadWatch::Past> Pasts() const { return threads_.Pasts(); }

 private:
  void Judge(int64_t now_ns);
  void Sample(int64_t now_ns);
  bool MaySample(int64_t now_ns) const;
  // For how long the helper has run since it was asked for the last sample; nullopt: it is not known.
  std::optional<int64_t> HelperRanNs() const;
  LockView ViewLocksNow();
  int64_t NextThreadsLookNs(int64_t now_ns, int64_t cost_ns, int64_t stretch) const;

  WatchedProcess process_;
  FreezeProbe freeze_{&process_};
  HeartbeatDetector heartbeats_{&process_, &freeze_};
  ShutdownDetector shutdown_{&process_};

  ThreadWatch threads_;
  DeadlockDetector deadlocks_{&process_, &threads_};
  SpinDetector spins_{&process_, &threads_};
  InferredDeadlockDetector inferred_{&process_, &threads_, &deadlocks_};
  StallDetector stalls_{&process_, &threads_, &deadlocks_, &freeze_};
  GoroutineDetector goroutines_{&process_, &threads_};
  const std::array<ThreadDetector*, 5> detectors_{&deadlocks_, &spins_, &inferred_, &stalls_, &goroutines_};

  int64_t threads_due_ns_ = 0;
  int failed_looks_ = 0;  // at threads, in a row
  // So many looks to come may see the runs of a capture: it may lie behind the next, where it waits for others.
  static constexpr int kDisturbedLooks = 2;
  int disturbed_looks_ = 0;
  int captures_ = 0;  // since the last look

  int64_t sampled_ns_ = 0;
  int failed_samples_ = 0;            // in a row
  int64_t helper_ran_before_ns_ = 0;  // of the helper's life, when it was asked for the last sample
  bool has_new_waits_ = false;
};

}  // namespace stackd
