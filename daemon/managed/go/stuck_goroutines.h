// Goroutines that wait for locks which no other goroutine has: each holder waits among them, or has ended.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "daemon/capture/managed.h"
#include "daemon/managed/go/goroutine_look.h"
#include "daemon/managed/go/lock_code.h"
#include "daemon/process/process_files.h"

namespace stackd {

// A goroutine of the program, by its place in the list of tasks.
struct TaskPlace {
  size_t task = 0;
  uint64_t sp_avma = 0, stack_hi_avma = 0;
};

// A goroutine that waits for a lock, and its place.
struct LockWaiter {
  Goroutine goroutine;
  size_t task = 0;
};

// Whether it waits for a lock of package sync, by the runtime's word for that.
bool IsLockWait(std::string_view wait_reason);

// Finder for one process at one moment.
class StuckGoroutines {
 public:
  // All must outlive it.
  StuckGoroutines(const GoBinary& binary, uint64_t bias, const ProcessFiles& memory, int64_t deadline_ns)
      : binary_(binary), bias_(bias), memory_(memory), deadline_ns_(deadline_ns), code_(binary, bias, deadline_ns) {}

  // Fills in `facts->stuck_goroutines`, inferred from the code of functions. `all`: each goroutine of the program;
  // `waiters`: those that wait for a lock. Takes a tenth of a second where goroutines are likely to be stuck: a lock that
  // is passed on looks so for an instant.
  void Find(std::span<const TaskPlace> all, std::span<const LockWaiter> waiters, ManagedFacts* facts);

 private:
  // By the code of the whole program, also of functions that no stack shows.
  bool SomeoneMayRelease(std::span<const TaskPlace> all, std::span<const LockWaiter> waiters, const ManagedFacts& facts);
  bool SomeOtherMayHold(std::span<const TaskPlace> all, std::span<const LockWaiter> waiters, const ManagedFacts& facts);
  bool MayHold(const ManagedStack& stack);
  bool CallsUnnamed(const ManagedStack& stack);
  // Words near the place of a wait, one of which is the address of the lock.
  std::set<uint64_t> WordsOfLocks(std::span<const LockWaiter> waiters) const;
  // Whether a function of the stack is one that releases, or calls methods that may be a lock's.
  bool MayReleaseOrLock(const ManagedStack& stack, const GoLockReleases& releases) const;
  // Whether the stack has one of the words. True also where it cannot be read.
  bool Refers(const TaskPlace& place, const std::set<uint64_t>& words) const;
  bool IsLooked(const ManagedFrame& frame) const;

  const GoBinary& binary_;
  const uint64_t bias_;
  const ProcessFiles& memory_;
  const int64_t deadline_ns_;
  GoLockCode code_;
  // Each waits for a lock of the program's own code: functions of Go's library have none of these.
  bool only_program_ = true;
};

}  // namespace stackd
