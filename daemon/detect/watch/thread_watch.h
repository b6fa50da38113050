// Which threads of one process have not run, since when, and what they sleep in.
//
// A thread whose count of runs is the same twice has not run between. So a wait that was seen between is the wait of all
// that time. Nothing is learned from threads that run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "daemon/capture/waits.h"

namespace stackd {

class ThreadWatch {
 public:
  struct Thread {
    ThreadSchedStat sched_stat;
    std::optional<int64_t> absent_at_ns;  // the last look without it; nullopt: it was there at the first
    int64_t unmoved_since_ns = 0;         // no later than this it had stopped to run; the look's time if it has run since
    int64_t busy_since_ns = 0;            // since then it has used a core whenever there was one; 0: it has not
    // True if it was sampled since unmoved_since_ns.
    bool was_sampled = false;
    std::optional<ThreadWait> wait;  // nullopt: not sampled, or it ran
    int64_t waits_since_ns = 0;      // of the sample that saw `wait` first
    // It answered a capture since: what it did before, if it goes on with that.
    struct Before {
      ThreadWait wait;
      int64_t unmoved_since_ns;
      uint64_t run_count;
      uint64_t allowed_runs;  // since, for answers
    };
    std::optional<Before> before;

    // It sleeps in `wait` and has not run since `since_ns`.
    bool HasWaitedSince(int64_t since_ns) const {
      return wait && waits_since_ns <= since_ns && unmoved_since_ns <= since_ns;
    }
    // It began when `other` slept already, which has not run since.
    bool BeganWhileSleeping(const Thread& other) const { return absent_at_ns && other.unmoved_since_ns <= *absent_at_ns; }
  };

  // A look at the schedstat. `was_disturbed`: the process was captured not long ago, so that each thread ran for that;
  // `captures` have begun since the last look.
  void Update(std::span<const ThreadSchedStat> sched_stats, int64_t now_ns, bool was_disturbed, int captures);
  // What the helper saw just now.
  void Learn(std::span<const ThreadWait> waits, int64_t now_ns);

  // Whether some thread sleeps, and it is not known in what.
  bool NeedsSample(int64_t now_ns) const;
  // Since then no thread has run, but to answer captures and samples.
  int64_t StillSinceNs() const;
  const std::map<int32_t, Thread>& threads() const { return threads_; }
  std::set<int32_t> Tids() const;
  // What is known of the time up to the last look.
  struct Past {
    ThreadPast past;
    ThreadSchedStat sched_stat;  // at the last look
  };
  std::map<int32_t, Past> Pasts() const;
  // The agent's own thread; 0: not known. It sleeps but for samples, and cannot see itself asleep.
  int32_t helper_tid() const { return helper_candidates_.size() == 1 ? *helper_candidates_.begin() : 0; }

 private:
  std::map<int32_t, Thread> threads_;
  int64_t looked_ns_ = 0;
  std::set<int32_t> helper_candidates_;
};

}  // namespace stackd
