// All that is known of one process: its heartbeats, its threads, its locks.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/analyze/waits/wait_end.h"
#include "daemon/capture/capture.h"
#include "daemon/detect/rules/rules.h"
#include "daemon/detect/watch/heartbeat_detector.h"
#include "daemon/detect/watch/lock_watch.h"
#include "daemon/detect/watch/probe.h"
#include "daemon/detect/watch/runtime_cycles.h"
#include "daemon/detect/watch/shutdown_detector.h"
#include "daemon/detect/watch/spin_detector.h"
#include "daemon/detect/watch/suspicion.h"
#include "daemon/detect/watch/thread_watch.h"

namespace stackd {

// What looks have cost and found, for all processes.
struct DetectCounters {
  std::atomic<int64_t> motion_looks{0};
  std::atomic<int64_t> samples{0};
  std::atomic<int64_t> samples_failed{0};
  std::atomic<int64_t> heartbeats_missed{0};
  std::atomic<int64_t> deadlocks{0};
  std::atomic<int64_t> spins{0};
  std::atomic<int64_t> no_progress{0};
  std::atomic<int64_t> not_gone{0};
  std::atomic<int64_t> sigterm_looks{0};
  // Nothing was held against a process that did not run as a whole: stopped, frozen, or at a breakpoint.
  std::atomic<int64_t> stopped{0};
  // Since 1970: when a heartbeat was last seen to beat, of any process; 0: never.
  std::atomic<int64_t> last_beat_wall_ns{0};
};

// Times in CLOCK_MONOTONIC of the caller's; not thread-safe.
class ProcessWatch {
 public:
  using Report = std::function<void(SharedSuspicion)>;

  // `report` gets each suspicion once.
  ProcessWatch(ProcessProbe* probe, const Rules* rules, DetectCounters* counters, Report report);
  // What was suspected is over.
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  void SetDescription(ProcessDescription description);
  // When the next looks are due.
  int64_t heartbeats_due_ns() const { return heartbeats_due_ns_; }
  int64_t threads_due_ns() const { return threads_due_ns_; }
  int64_t sigterm_due_ns() const { return sigterm_due_ns_; }
  // False: it left the last question of a look at heartbeats without an answer, and took its whole time.
  bool answers() const { return unanswered_ == 0; }

  // `may_ask`: a question that the process may leave without an answer, for as long as that takes.
  void LookAtHeartbeats(int64_t now_ns, const std::function<bool()>& may_ask);
  // `cpu_clock` gives the CPU time of the caller; `stretch` is a factor for the time to the next look, 1 or more.
  void LookAtThreads(int64_t now_ns, const std::function<int64_t()>& cpu_clock, int64_t stretch);

  void LookAtSigterm(int64_t now_ns, int64_t stretch);

  // Notes that `captures` are under way or just ended: the threads run for these and for nothing else.
  void Disturb(int captures) {
    disturbed_looks_ = kDisturbedLooks;
    captures_ += captures;
  }
  std::map<int32_t, int64_t> UnmovedSince() const { return threads_.UnmovedSince(); }

 private:
  const std::shared_ptr<const Rule>& RuleFor(RuleTrigger trigger) const;
  void Sample(int64_t now_ns);
  bool MaySample(int64_t now_ns) const;
  // Some look at locks is due.
  bool NeedsLocks(int64_t now_ns);
  LockView ViewLocksNow();
  void EndDeadlocksThatMoved();
  void EndSuspicionsOfThreads();
  void SuspectDeadlocks(const LockView& view, int64_t now_ns);
  // Circles of waits for what keeps no owner: only stacks tell.
  void SuspectInferred(const LockView& view, int64_t now_ns);
  // Whether a thread waits for the lock in a function that such a circle may go through.
  std::optional<bool> WaitsForWhatKeepsNoOwner(int32_t tid);
  void EndInferredThatMoved();
  // Asks for the circle of a thread that waits so.
  void ReportCircle(const std::pair<const int32_t, uint64_t>& wait, const std::set<int32_t>& still, int64_t now_ns);
  // Circles of waits for locks of Java or Python, which a capture has to prove.
  void SuspectInRuntimes(const LockView& view, int64_t now_ns);
  void SuspectSpin(const LockView& view, int64_t now_ns);
  void SuspectStandstill(const LockView& view, int64_t now_ns);
  bool StandsStill(int64_t now_ns) const;
  // What ends the wait of each thread that sleeps; nullopt if that cannot be known now.
  std::optional<std::map<int32_t, WaitEnd>> WaitEnds(const LockView& view);
  // The lock whose owner should have done something by now; nullptr if there is none.
  const LockWait* FindStuck(const LockView& view, const std::map<int32_t, WaitEnd>& ends) const;
  int64_t NextThreadsLookNs(int64_t now_ns, int64_t cost_ns, int64_t stretch);
  bool IsStopped(int32_t tid) const;
  // Whether not even the agent's helper runs. One question in a look.
  enum class Frozen { kNo, kYes, kNotKnown };
  Frozen AskWhetherFrozen(int64_t now_ns, const std::function<bool()>& may_ask);
  // Answers the same by whether any thread has run, for a process that is not to be asked now.
  Frozen SeeWhetherFrozen(int64_t now_ns);
  HeartbeatWatch::Verdict Judge(const Heartbeat& heartbeat, int64_t now_ns, const std::function<bool()>& may_ask);
  // Ends what heartbeats made suspect: no rule asks for them any more.
  void EndHeartbeats();
  SharedSuspicion Suspect(HangCapture hang, std::string subject, RuleTrigger trigger, int64_t now_ns,
                          bool is_inferred = false);

  ProcessProbe* const probe_;
  const Rules* const rules_;
  DetectCounters* const counters_;
  const Report report_;
  ProcessDescription description_;
  std::array<std::shared_ptr<const Rule>, kRuleTriggers> rule_for_;

  int64_t heartbeats_due_ns_ = 0;
  int64_t heartbeats_looked_ns_ = 0;
  HeartbeatWatch heartbeats_;
  int64_t asked_ns_ = 0;  // whether it is frozen
  Frozen answer_ = Frozen::kNotKnown;
  int unanswered_ = 0;          // in a row
  int64_t rests_until_ns_ = 0;  // it is not asked again before
  std::vector<int64_t> seen_motion_;
  int64_t seen_ns_ = 0;
  std::map<uint32_t, SharedSuspicion> missed_;  // by cell

  int64_t sigterm_due_ns_ = 0;
  SigtermWatch sigterm_;
  SharedSuspicion survival_;  // the last

  int64_t threads_due_ns_ = 0;
  int failed_looks_ = 0;  // at threads, in a row
  // So many looks to come may see the runs of a capture: it may lie behind the next, where it waits for others.
  static constexpr int kDisturbedLooks = 2;
  int disturbed_looks_ = 0;
  int captures_ = 0;  // since the last look
  ThreadWatch threads_;
  DeadlockWatch deadlocks_;
  SpinWatch spins_;

  int64_t sampled_ns_ = 0;
  int failed_samples_ = 0;            // in a row
  int64_t helper_ran_before_ns_ = 0;  // of the helper's life, when it was asked for the last sample
  bool has_new_waits_ = false;

  struct KnownDeadlock {
    Deadlock deadlock;
    int64_t found_ns;
    SharedSuspicion suspicion;
  };
  std::map<std::string, KnownDeadlock> known_deadlocks_;
  RuntimeCircles runtime_circles_;
  // The waits that only stacks tell of, by thread, since when they are the same, and whether these are still to be judged.
  using OwnerlessWaits = std::map<int32_t, uint64_t>;
  OwnerlessWaits ownerless_;
  int64_t ownerless_since_ns_ = 0;
  bool ownerless_is_judged_ = true;
  // How often threads of each wait were asked: looking at them has them run, and look like new.
  std::map<std::pair<int32_t, uint64_t>, int> ownerless_tries_;
  OwnerlessWaits inferred_waits_;
  SharedSuspicion inferred_;
  // Whether the standstill that lasts was judged, and the suspicion that came of it.
  bool standstill_is_judged_ = false;
  SharedSuspicion standstill_;
};

}  // namespace stackd
