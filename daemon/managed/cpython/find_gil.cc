#include "daemon/managed/cpython/find_gil.h"

#include <string.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>

#include "daemon/capture/waited_on.h"

namespace stackd {
namespace {

// struct _gil_runtime_state, the same from 3.8 to 3.14, by offsetof() in the headers of each. Its fields: unsigned long
// interval, the last holder, int locked, unsigned long switch_number, then a condition variable and its mutex, twice.
constexpr uint64_t kConditionVariables[] = {32, 120};
// glibc's condition variables: waiters sleep on one of two words, __g_signals; up to 2.40, and from 2.41 on.
constexpr uint64_t kFutexWords[] = {40, 44, 32, 36};
// PyThreadState begins with the links of its list and its interpreter; 3.8 to 3.14.
constexpr uint64_t kInterpreterOfThread = 16;
// Bytes of PyThreadState that reach its thread_id and not beyond its end; 3.8 to 3.14.
constexpr size_t kThreadStateWords = 24;
constexpr uint64_t kGilBytes = 216;
constexpr uint64_t kMaxIntervalUs = 1ull << 40;

struct GilWords {
  uint64_t interval_us;
  uint64_t last_holder_avma;
  int32_t locked;
};

template <typename T>
bool Read(const ProcessFiles& memory, uint64_t avma, T* value) {
  uint8_t bytes[sizeof(T)];
  if (memory.ReadSome(avma, bytes) != sizeof(bytes)) return false;
  memcpy(value, bytes, sizeof(bytes));
  return true;
}

bool IsGil(uint64_t avma, const std::set<uint64_t>& interpreters, const ProcessFiles& memory) {
  GilWords gil;
  uint64_t interpreter;
  return avma % 8 == 0 && Read(memory, avma, &gil) && gil.interval_us > 0 && gil.interval_us < kMaxIntervalUs &&
         (gil.locked == 0 || gil.locked == 1) && gil.last_holder_avma != 0 && gil.last_holder_avma % 8 == 0 &&
         Read(memory, gil.last_holder_avma + kInterpreterOfThread, &interpreter) && interpreters.contains(interpreter);
}

// 0: none.
uint64_t GilAround(uint64_t futex_avma, const std::set<uint64_t>& interpreters, const ProcessFiles& memory) {
  for (uint64_t condition_variable : kConditionVariables) {
    for (uint64_t word : kFutexWords) {
      const uint64_t avma = futex_avma - condition_variable - word;
      if (IsGil(avma, interpreters, memory)) return avma;
    }
  }
  return 0;
}

// By what it says of itself; 0: none, or not known.
int32_t HolderOfGil(uint64_t avma, const WaitInput& input) {
  GilWords gil;
  std::array<uint64_t, kThreadStateWords> thread_state;
  if (!Read(input.memory, avma, &gil) || gil.locked != 1 || !Read(input.memory, gil.last_holder_avma, &thread_state)) {
    return 0;
  }
  // One of its words is what pthread_self() gives in the thread, in each version another.
  const auto holder = std::ranges::find_if(input.capture.threads, [&](const ThreadCapture& thread) {
    return thread.thread_self_avma != 0 && std::ranges::find(thread_state, thread.thread_self_avma) != thread_state.end();
  });
  return holder == input.capture.threads.end() ? 0 : holder->tid;
}

std::optional<uint64_t> FutexOf(const ThreadCapture& thread) {
  if (!thread.call || thread.call->number != SYS_futex || !thread.call->knows(0)) return std::nullopt;
  return thread.call->arguments[0];
}

}  // namespace

std::vector<ManagedWait> FindGilWaits(const std::vector<ThreadCapture>& threads, const std::set<uint64_t>& interpreters,
                                      const std::set<int32_t>& holders, const ProcessFiles& memory) {
  std::vector<ManagedWait> waits;
  std::map<uint64_t, uint64_t> gils;  // by futex
  // Threads are captured one after another: two may have had it in turn. Of several interpreters each may have a lock of
  // its own, from 3.12 on.
  const int32_t owner_tid = holders.size() == 1 && interpreters.size() == 1 ? *holders.begin() : 0;
  for (const ThreadCapture& thread : threads) {
    const std::optional<uint64_t> futex_avma = FutexOf(thread);
    if (!futex_avma) continue;
    const auto [known, is_new] = gils.try_emplace(*futex_avma);
    if (is_new) known->second = GilAround(*futex_avma, interpreters, memory);
    if (known->second == 0 || thread.tid == owner_tid) continue;
    waits.push_back({.kind = ManagedLockKind::kGil,
                     .waiter_tid = thread.tid,
                     .owner_tid = owner_tid,
                     .lock_avma = known->second,
                     .lock = "the GIL"});
  }
  return waits;
}

std::vector<ManagedWait> ReadGilWaits(const WaitInput& input) {
  std::vector<ManagedWait> waits;
  for (const ManagedWait& wait : input.waits) {
    if (wait.kind != ManagedLockKind::kGil) continue;
    const auto waiter = std::ranges::find(input.sleeping, wait.waiter_tid, &ThreadWait::tid);
    const auto futex_avma = waiter == input.sleeping.end() || !waiter->call ? std::nullopt : WaitedFutex(*waiter->call);
    if (!futex_avma || *futex_avma - wait.lock_avma >= kGilBytes) continue;
    waits.push_back(wait);
    waits.back().owner_tid = HolderOfGil(wait.lock_avma, input);
  }
  return waits;
}

}  // namespace stackd
