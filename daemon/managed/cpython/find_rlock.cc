#include "daemon/managed/cpython/find_rlock.h"

#include <string.h>

#include <array>
#include <optional>
#include <set>
#include <string_view>

#include "daemon/base/clock.h"
#include "daemon/capture/waited_on.h"
#include "daemon/process/control_block.h"

namespace stackd {
namespace {

constexpr std::string_view kTypeName = "_thread.RLock";
// Offsets in each object, and in its type: 3.8 to 3.14, with a GIL.
constexpr uint64_t kObjectType = 8, kNameOfType = 24;
constexpr uint64_t kNoAddress = 0x10000, kEndOfAddresses = 1ull << 47;

// rlockobject. `lock` is a pointer to a semaphore, whose first word is the futex, and from 3.14 on a PyMutex. `owner` is
// pthread_self() in the thread that has it, or 0.
struct RLock {
  uint64_t references, type_avma, lock, owner;
};
// From 3.14 on a thread sleeps on a semaphore on its own stack; before that lies what it waits for (struct wait_entry).
constexpr uint64_t kParkedFor = 8, kMutexOfRLock = 16;

// Functions of libc and of the interpreter lie between the call and the one that has the lock on its stack.
constexpr size_t kStackWords = 256;

template <typename T>
std::optional<T> Read(const ProcessFiles& memory, uint64_t avma) {
  T value;
  std::array<uint8_t, sizeof(T)> bytes;
  if (avma < kNoAddress || avma >= kEndOfAddresses || avma % 8 != 0) return std::nullopt;
  if (memory.ReadSome(avma, bytes) != bytes.size()) return std::nullopt;
  memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

bool IsRLock(const RLock& lock, const ProcessFiles& memory) {
  const auto name_avma = Read<uint64_t>(memory, lock.type_avma + kNameOfType);
  std::array<char, kTypeName.size() + 1> name = {};
  if (!name_avma || memory.ReadSome(*name_avma, {reinterpret_cast<uint8_t*>(name.data()), name.size()}) != name.size()) {
    return false;
  }
  return std::string_view(name.data(), name.size()) == std::string_view(kTypeName.data(), name.size());
}

struct FoundLock {
  uint64_t avma;
  RLock lock;
};

std::optional<FoundLock> FindParked(uint64_t futex_avma, const ProcessFiles& memory) {
  const auto mutex_avma = Read<uint64_t>(memory, futex_avma - kParkedFor);
  if (!mutex_avma) return std::nullopt;
  const uint64_t avma = *mutex_avma - kMutexOfRLock;
  const auto lock = Read<RLock>(memory, avma);
  return lock && IsRLock(*lock, memory) ? std::optional(FoundLock{avma, *lock}) : std::nullopt;
}

std::optional<FoundLock> FindOnStack(uint64_t rsp_avma, uint64_t futex_avma, const ProcessFiles& memory) {
  std::array<uint64_t, kStackWords> words;
  const size_t got = memory.ReadSome(rsp_avma, {reinterpret_cast<uint8_t*>(words.data()), sizeof(words)});
  std::set<uint64_t> seen;
  for (uint64_t word : std::span(words).first(got / sizeof(uint64_t))) {
    if (!seen.insert(word).second) continue;
    const auto lock = Read<RLock>(memory, word);
    if (lock && lock->lock == futex_avma && IsRLock(*lock, memory)) return FoundLock{word, *lock};
  }
  return std::nullopt;
}

bool IsTimed(const SystemCall& futex_call) {
  constexpr int kTimeout = 3;
  return futex_call.knows(kTimeout) && futex_call.arguments[kTimeout] != 0;
}

}  // namespace

std::vector<ManagedWait> FindRLockWaits(std::span<const ThreadWait> sleeping, const ProcessFiles& memory,
                                        int64_t deadline_ns) {
  std::vector<ManagedWait> waits;
  for (const ThreadWait& waiter : sleeping) {
    const auto futex_avma = waiter.call ? WaitedFutex(*waiter.call) : std::nullopt;
    if (!futex_avma || MonotonicNs() >= deadline_ns) continue;
    auto found = FindParked(*futex_avma, memory);
    if (!found) found = FindOnStack(waiter.rsp_avma, *futex_avma, memory);
    if (!found) continue;
    const bool is_timed = IsTimed(*waiter.call);
    waits.push_back({.kind = ManagedLockKind::kMonitor,
                     .waiter_tid = waiter.tid,
                     .owner_tid = is_timed ? 0 : TidOfControlBlock(memory, found->lock.owner),
                     .lock_avma = found->avma,
                     .lock = "threading.RLock"});
  }
  return waits;
}

}  // namespace stackd
