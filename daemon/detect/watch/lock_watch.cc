#include "daemon/detect/watch/lock_watch.h"

#include <linux/futex.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <unordered_map>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/detect/watch/words.h"

namespace stackd {
namespace {

constexpr int64_t kConfirmNs = kNsPerSecond;
constexpr int kOperation = 1;
constexpr int kTimeout = 3;

bool HasTimeLimit(const SystemCall& call) { return call.knows(kTimeout) && call.arguments[kTimeout] != 0; }

// An owner that may be in another process is no hang that can be told from here.
std::optional<LockWait> LockWaitOf(int32_t tid, const SystemCall& call, const FutexWord& futex,
                                   const std::set<int32_t>& tids) {
  if (futex.is_shared) return std::nullopt;
  const auto held_by = [&](int32_t owner, uint64_t lock) {
    return LockWait{tid, lock, owner, owner != 0 && !tids.contains(owner)};
  };
  const auto command = static_cast<uint32_t>(call.arguments[kOperation]) & FUTEX_CMD_MASK;
  const bool is_private = (call.arguments[kOperation] & FUTEX_PRIVATE_FLAG) != 0;
  if (command == FUTEX_LOCK_PI || command == FUTEX_LOCK_PI2) {
    const auto owner = static_cast<int32_t>(futex.value & FUTEX_TID_MASK);
    if (owner != 0 && (is_private || tids.contains(owner))) return held_by(owner, futex.avma);
  } else if (futex.mutex) {
    const PthreadMutex& mutex = *futex.mutex;
    if (mutex.owner_tid != 0 && (is_private || tids.contains(mutex.owner_tid))) {
      return held_by(mutex.owner_tid, futex.avma - mutex.futex_offset);
    }
  } else if (futex.stdio_owner_tid != 0) {
    if (is_private && tids.contains(futex.stdio_owner_tid)) return held_by(futex.stdio_owner_tid, futex.avma);
  } else if (futex.rwlock) {
    const GlibcRwlock& lock = *futex.rwlock;
    if (lock.writer_tid != 0) {
      if (is_private || tids.contains(lock.writer_tid)) return held_by(lock.writer_tid, lock.avma);
    } else if (is_private && lock.reader_count != 0) {
      return held_by(0, lock.avma);
    }
  }
  return std::nullopt;
}

// A thread that sleeps until the word changes.
struct Sleeper {
  int32_t tid;
  const ThreadWatch::Thread* thread;
  const FutexWord* futex;
};

// Locks whose owner began when a thread slept there already: the tid was another thread's when the lock was taken. A writer
// that began later may have an rwlock, since it goes before readers that wait.
std::set<uint64_t> LocksOfReusedTids(std::span<const LockWait> locks, std::span<const Sleeper> sleepers,
                                     const ThreadWatch& threads) {
  std::set<uint64_t> avmas;
  for (const LockWait& lock : locks) {
    const auto owner = threads.threads().find(lock.owner_tid);
    const auto sleeper = std::ranges::find(sleepers, lock.waiter_tid, &Sleeper::tid);
    if (owner == threads.threads().end() || sleeper == sleepers.end() || sleeper->futex->rwlock) continue;
    if (owner->second.BeganWhileSleeping(*sleeper->thread)) avmas.insert(lock.lock_avma);
  }
  return avmas;
}

// Whether a word looks as those of glibc, libstdc++ and Rust do while a thread waits. Other words may look so, too.
bool IsOwnerless(const FutexWord& futex, const SystemCall& call) {
  constexpr uint32_t kLockedWithWaiters = 2, kOnceInProgress = 1, kOnceMask = 3, kGuardPendingWithWaiters = 0x10100;
  constexpr uint32_t kRustWriteLocked = 0x3fffffff;
  if (futex.is_shared || futex.mutex || futex.rwlock || futex.thread_tid != 0 || futex.stdio_owner_tid != 0) return false;
  if (futex.value == kGuardPendingWithWaiters) return true;
  const bool is_private = (call.arguments[kOperation] & FUTEX_PRIVATE_FLAG) != 0;
  const bool is_rust_rwlock = (futex.value & kRustWriteLocked) == kRustWriteLocked && futex.value != kRustWriteLocked;
  return is_private &&
         (futex.value == kLockedWithWaiters || (futex.value & kOnceMask) == kOnceInProgress || is_rust_rwlock);
}

}  // namespace

std::string InWords(const LockWait& lock) {
  char avma[32];
  snprintf(avma, sizeof(avma), "0x%llx", static_cast<unsigned long long>(lock.lock_avma));
  const std::string text = ThreadInWords(lock.waiter_tid) + " waits for the lock " + avma + ", which ";
  if (lock.owner_tid == 0) return text + "readers hold";
  return text + ThreadInWords(lock.owner_tid) + (lock.owner_is_gone ? ", which has ended, held" : " holds");
}

std::vector<FutexWait> FutexesOf(const ThreadWatch& threads) {
  std::vector<FutexWait> waits;
  for (const auto& [tid, thread] : threads.threads()) {
    if (!thread.wait || !thread.wait->call) continue;
    if (auto avma = WaitedFutex(*thread.wait->call)) waits.push_back({tid, *avma});
  }
  return waits;
}

LockView ViewLocks(const ThreadWatch& threads, std::span<const FutexWord> futexes) {
  std::unordered_map<uint64_t, const FutexWord*> by_avma;
  for (const FutexWord& futex : futexes) by_avma.emplace(futex.avma, &futex);
  const std::set<int32_t> tids = threads.Tids();
  LockView view;
  std::vector<Sleeper> sleepers;
  for (const auto& [tid, thread] : threads.threads()) {
    if (!thread.wait || !thread.wait->call) continue;
    const SystemCall& call = *thread.wait->call;
    const auto avma = WaitedFutex(call);
    if (!avma || HasTimeLimit(call)) continue;
    const auto futex = by_avma.find(*avma);
    if (futex == by_avma.end()) continue;
    sleepers.push_back({tid, &thread, futex->second});
    if (IsOwnerless(*futex->second, call)) view.ownerless.emplace(tid, *avma);
    if (futex->second->is_shared) view.shared_waiters.insert(tid);
    if (auto edge = EdgeOf(tid, call, *futex->second, tids)) view.edges.push_back(*edge);
    if (auto lock = LockWaitOf(tid, call, *futex->second, tids)) view.locks.push_back(*lock);
  }
  const std::set<uint64_t> reused = LocksOfReusedTids(view.locks, sleepers, threads);
  std::erase_if(view.edges, [&](const WaitEdge& edge) { return reused.contains(edge.lock_avma); });
  for (LockWait& lock : view.locks) lock.owner_is_gone = lock.owner_is_gone || reused.contains(lock.lock_avma);
  return view;
}

std::string KeyOf(std::span<const WaitEdge> edges) {
  std::string key;
  for (const WaitEdge& edge : edges) {
    char text[48];
    snprintf(text, sizeof(text), "%s%d>0x%llx", key.empty() ? "" : " ", edge.waiter_tid,
             static_cast<unsigned long long>(edge.lock_avma));
    key += text;
  }
  return key;
}

std::vector<Deadlock> DeadlockWatch::Look(const LockView& view, const ThreadWatch& threads, int64_t now_ns) {
  std::map<std::string, int64_t> before = std::exchange(candidates_, {});
  std::vector<Deadlock> certain;
  for (std::vector<WaitEdge>& cycle : FindCycles(view.edges)) {
    std::string key = KeyOf(cycle);
    const auto known = before.find(key);
    const int64_t first_seen_ns = known == before.end() ? now_ns : known->second;
    int64_t since_ns = 0;
    bool has_stood = true;
    for (const WaitEdge& edge : cycle) {
      const ThreadWatch::Thread& thread = threads.threads().at(edge.waiter_tid);
      has_stood = has_stood && thread.HasWaitedSince(first_seen_ns);
      since_ns = std::max(since_ns, thread.unmoved_since_ns);
    }
    if (has_stood && now_ns - first_seen_ns >= kConfirmNs) {
      certain.push_back({std::move(cycle), std::move(key), since_ns});
    } else {
      candidates_.emplace(std::move(key), has_stood ? first_seen_ns : now_ns);
    }
  }
  return certain;
}

}  // namespace stackd
