#include "daemon/managed/ruby/ruby_waits.h"

#include <algorithm>
#include <set>
#include <span>
#include <string_view>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

constexpr char kVmLockName[] = "the GVL";
constexpr char kMutexName[] = "Thread::Mutex";

// Threads in a system call: a futex, or poll() in the one that watches for signals besides.
std::set<int32_t> SleepersOf(const Capture& capture) {
  std::set<int32_t> sleepers;
  for (const ThreadCapture& thread : capture.threads) {
    if (thread.call) sleepers.insert(thread.tid);
  }
  return sleepers;
}

std::set<int32_t> SleepersOf(std::span<const ThreadWait> sleeping) {
  std::set<int32_t> sleepers;
  for (const ThreadWait& wait : sleeping) {
    if (wait.call) sleepers.insert(wait.tid);
  }
  return sleepers;
}

void AddVmLock(uint64_t ractor_avma, const std::set<int32_t>& sleepers, const RubyObjects& objects,
               std::vector<ManagedWait>* waits) {
  const auto lock = objects.ReadVmLock(ractor_avma);
  if (!lock) return;
  const int32_t owner_tid = lock->owner_avma == 0 ? 0 : objects.TidOf(lock->owner_avma);
  for (const uint64_t waiter : lock->waiters) {
    const int32_t waiter_tid = objects.TidOf(waiter);
    if (!sleepers.contains(waiter_tid) || waiter_tid == owner_tid) continue;
    waits->push_back({.kind = ManagedLockKind::kGil,
                      .waiter_tid = waiter_tid,
                      .owner_tid = owner_tid,
                      .lock_avma = ractor_avma,
                      .lock = kVmLockName});
  }
}

void AddMutex(uint64_t mutex_avma, int32_t waiter_tid, const RubyObjects& objects, std::vector<ManagedWait>* waits) {
  const auto mutex = objects.ReadMutex(mutex_avma);
  if (!mutex) return;
  const auto waits_here = [&](uint64_t waiter) { return objects.TidOf(waiter) == waiter_tid; };
  if (std::ranges::none_of(mutex->waiters, waits_here)) return;
  waits->push_back({.kind = ManagedLockKind::kMonitor,
                    .waiter_tid = waiter_tid,
                    .owner_tid = mutex->owner_avma == 0 ? 0 : objects.TidOf(mutex->owner_avma),
                    .lock_avma = mutex_avma,
                    .lock = kMutexName});
}

}  // namespace

std::vector<ManagedWait> FindRubyWaits(const std::map<int32_t, uint64_t>& threads, const Capture& capture,
                                       const RubyObjects& objects) {
  std::vector<ManagedWait> waits;
  const std::set<int32_t> sleepers = SleepersOf(capture);
  std::set<uint64_t> ractors;
  for (const auto& [tid, thread_avma] : threads) {
    const uint64_t ractor_avma = objects.RactorOf(thread_avma);
    if (ractors.insert(ractor_avma).second) AddVmLock(ractor_avma, sleepers, objects, &waits);
    const uint64_t mutex_avma = sleepers.contains(tid) ? objects.WaitedMutex(thread_avma) : 0;
    if (mutex_avma != 0) AddMutex(mutex_avma, tid, objects, &waits);
  }
  return waits;
}

std::vector<ManagedWait> ReadRubyWaits(const WaitInput& input, const RubyObjects& objects) {
  std::vector<ManagedWait> waits;
  const std::set<int32_t> sleepers = SleepersOf(input.sleeping);
  std::set<uint64_t> ractors;
  for (const ManagedWait& wait : input.waits) {
    if (wait.lock == kVmLockName && ractors.insert(wait.lock_avma).second) {
      AddVmLock(wait.lock_avma, sleepers, objects, &waits);
    }
  }
  for (const ThreadWait& sleeper : input.sleeping) {
    if (!sleeper.call || MonotonicNs() >= input.deadline_ns) continue;
    const uint64_t mutex_avma = objects.WaitedMutexOnStack(sleeper.rsp_avma, sleeper.tid);
    if (mutex_avma != 0) AddMutex(mutex_avma, sleeper.tid, objects, &waits);
  }
  return waits;
}

}  // namespace stackd
