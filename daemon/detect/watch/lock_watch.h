// Waits for locks among the sleeping threads of one process: cycles, and owners that keep others waiting.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "daemon/analyze/waits/wait_graph.h"
#include "daemon/capture/waits.h"
#include "daemon/detect/watch/thread_watch.h"

namespace stackd {

// A thread that sleeps until a lock is free, however long that takes.
struct LockWait {
  int32_t waiter_tid = 0;
  uint64_t lock_avma = 0;
  int32_t owner_tid = 0;  // 0: readers have it, and it does not say who
  bool owner_is_gone = false;
};

// "thread 12 waits for the lock 0x7f00, which thread 13 holds"
std::string InWords(const LockWait& lock);

// Which thread waits for which, without end. Waits that the program limited are left out, since they end by themselves.
struct LockView {
  std::vector<WaitEdge> edges;  // joins as well
  std::vector<LockWait> locks;  // joins are none
  // By thread, the words of locks that keep no owner and that one function alone has such values in: once flags, guards of
  // static variables, locks of the C library's own.
  std::map<int32_t, uint64_t> ownerless;
  std::set<int32_t> shared_waiters;  // that sleep on words which other processes may have
};

// Views the locks of threads that sleep. `futexes`: what ReadFutexes gave for the addresses of FutexesOf.
LockView ViewLocks(const ThreadWatch& threads, std::span<const FutexWord> futexes);
std::vector<FutexWait> FutexesOf(const ThreadWatch& threads);

// A cycle that two looks have seen, a second or more apart, and none of whose threads ran between.
struct Deadlock {
  std::vector<WaitEdge> edges;
  std::string key;  // equal for equal edges
  int64_t since_ns = 0;
};

class DeadlockWatch {
 public:
  // Gives cycles that are certain with this look and were not before.
  std::vector<Deadlock> Look(const LockView& view, const ThreadWatch& threads, int64_t now_ns);
  // A cycle was seen that the next look may confirm.
  bool HasCandidates() const { return !candidates_.empty(); }

 private:
  std::map<std::string, int64_t> candidates_;  // key -> when it was seen first
};

// "12>0x7f00 13>0x7f40"
std::string KeyOf(std::span<const WaitEdge> edges);

}  // namespace stackd
