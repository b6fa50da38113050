// Which suspicion is dumped next, and which is not: cooldowns and limits of rules.
//
// Bounds dumps in a storm of hangs without losing a hang. A suspicion that its rule has no room for waits here until there
// is room, or until the hang is over.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/detect/watch/suspicion.h"

namespace stackd {

// Not thread-safe.
class HangQueue {
 public:
  enum class Verdict { kQueued, kInCooldown };

  Verdict Add(SharedSuspicion suspicion, int64_t now_ns);
  // The next to dump now, if a rule has room for one: of the process that had the fewest dumps, the oldest.
  SharedSuspicion Take(int64_t now_ns);
  // Takes back a suspicion whose dump failed: it is tried again some time later, and a few times in all. False: no more.
  bool Return(SharedSuspicion suspicion, int64_t now_ns);
  // Gives those that have waited for `patience_ns`, each once. They stay.
  std::vector<SharedSuspicion> TakeOverdue(int64_t now_ns, int64_t patience_ns);
  // Forgets a process that has gone.
  void Forget(const std::string& process_id);

  size_t waiting() const { return waiting_.size(); }
  int64_t deferred() const { return deferred_; }
  int64_t over_before_dump() const { return over_before_dump_; }

 private:
  struct Waiting {
    SharedSuspicion suspicion;
    int64_t not_before_ns = 0;
    bool was_overdue = false;
    bool was_deferred = false;
  };
  struct Dumped {
    std::string process_id;
    int64_t when_ns;
  };

  void DropOver();
  // Dumps that the rule has had within its window.
  size_t RecentOf(const Rule& rule, int64_t now_ns);

  std::deque<Waiting> waiting_;
  std::map<std::string, std::deque<Dumped>> recent_;                     // by name of the rule
  std::map<std::pair<std::string, std::string>, int64_t> last_dump_ns_;  // by process id and subject
  int64_t deferred_ = 0;
  int64_t over_before_dump_ = 0;
};

}  // namespace stackd
