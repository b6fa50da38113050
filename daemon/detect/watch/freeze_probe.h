// Whether not even the agent's helper of a process runs. A process whose cgroup is frozen says that it sleeps.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/detect/watch/watched_process.h"

namespace stackd {

enum class Frozen { kNo, kYes, kNotKnown };

class FreezeProbe {
 public:
  static constexpr int64_t kTimeoutNs = 300 * kNsPerMs;

  explicit FreezeProbe(const WatchedProcess* process) : process_(process) {}

  // Asks the helper, which would run for a sample, once in a look at the most. `may_ask`: the process may leave the
  // question without an answer, for as long as that takes.
  Frozen Ask(int64_t now_ns, const std::function<bool()>& may_ask);
  // False: it left the last question without an answer, and took its whole time.
  bool answers() const { return unanswered_ == 0; }

 private:
  // Answers the same by whether any thread has run, for a process that is not to be asked now.
  Frozen SeeWhetherItRuns(int64_t now_ns);

  const WatchedProcess* const process_;
  int64_t asked_ns_ = 0;
  Frozen answer_ = Frozen::kNotKnown;
  int unanswered_ = 0;          // in a row
  int64_t rests_until_ns_ = 0;  // it is not asked again before
  std::vector<int64_t> seen_sched_stat_;
  int64_t seen_ns_ = 0;
};

}  // namespace stackd
