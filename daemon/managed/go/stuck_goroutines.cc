#include "daemon/managed/go/stuck_goroutines.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <thread>

#include "daemon/base/clock.h"
#include "daemon/managed/go/memory_batch.h"

namespace stackd {
namespace {

// Goroutines were read one after the other. So many looks at once must show all of them in the same waits.
constexpr int kLooks = 20;
constexpr int64_t kBetweenLooksNs = 5 * kNsPerMs;
// More take too long to be seen at once.
constexpr size_t kMaxWaiters = 10'000;

// What the functions of a wait for a lock have on the stack, and the place where its caller keeps the lock's address.
constexpr size_t kWaitBytes = 768;
constexpr uint64_t kLeastAvma = 1 << 16, kMaxAvma = 1ull << 47;
// A larger stack may have anything.
constexpr uint64_t kMaxStackBytes = 64 << 10;

constexpr std::string_view kAgent = "stackd.example/go.";

bool IsOfSync(std::string_view function) { return function.starts_with("sync.") || function.starts_with("internal/sync."); }

// Whether the goroutine waits for a lock of the program's own code, by who asked for it.
bool IsOfProgram(const ManagedStack& stack) {
  const auto caller =
      std::ranges::find_if(stack.frames, [](const ManagedFrame& frame) { return !IsOfSync(frame.function.str()); });
  return caller != stack.frames.end() && !GoLockCode::IsStandard(caller->function.str());
}

bool IsAgents(const ManagedTask& task, const ManagedStack* stack) {
  if (task.created_by.starts_with(kAgent)) return true;
  return stack != nullptr && std::ranges::any_of(stack->frames, [](const ManagedFrame& frame) {
           return frame.function.str().starts_with(kAgent);
         });
}

const ManagedStack* StackOf(const ManagedFacts& facts, const ManagedTask& task) {
  return task.stack < 0 ? nullptr : &facts.task_stacks[static_cast<size_t>(task.stack)];
}

// A look at all waiters, as close to one moment as a process that runs allows.
class Looks {
 public:
  Looks(const GoLayout& layout, const ProcessFiles& memory, std::span<const LockWaiter> waiters)
      : layout_(layout), memory_(memory), waiters_(waiters) {}

  bool AllWaitStill() {
    batch_.Clear();
    for (const LockWaiter& waiter : waiters_) batch_.Add(waiter.goroutine.g_avma, layout_.g_bytes());
    batch_.Read(memory_);
    for (size_t i = 0; i < waiters_.size(); ++i) {
      if (!WaitsStill(waiters_[i].goroutine, batch_.Bytes(i))) return false;
    }
    return true;
  }

 private:
  template <typename T>
  static T Load(std::span<const uint8_t> bytes, size_t position) {
    T value;
    memcpy(&value, &bytes[position], sizeof(T));
    return value;
  }

  bool WaitsStill(const Goroutine& before, std::span<const uint8_t> now) const {
    const auto& at = layout_.g;
    return !now.empty() && (Load<uint32_t>(now, at.atomic_status) & ~kGoScanBit) == before.status &&
           Load<uint64_t>(now, at.goid) == before.id && Load<uint64_t>(now, at.sched_sp) == before.sched_sp &&
           Load<uint64_t>(now, at.sched_pc) == before.sched_pc && Load<uint8_t>(now, at.wait_reason) == before.wait_reason;
  }

  const GoLayout& layout_;
  const ProcessFiles& memory_;
  std::span<const LockWaiter> waiters_;
  MemoryBatch batch_;
};

}  // namespace

bool IsLockWait(std::string_view wait_reason) {
  constexpr std::string_view kReasons[] = {"sync.Mutex.Lock", "sync.RWMutex.RLock", "sync.RWMutex.Lock"};
  return std::ranges::find(kReasons, wait_reason) != std::end(kReasons);
}

bool StuckGoroutines::IsLooked(const ManagedFrame& frame) const {
  return !only_program_ || !GoLockCode::IsStandard(frame.function.str());
}

bool StuckGoroutines::MayHold(const ManagedStack& stack) {
  if (!stack.problem.empty()) return true;
  return std::ranges::any_of(stack.frames,
                             [this](const ManagedFrame& frame) { return IsLooked(frame) && code_.MayHold(frame.pc_avma); });
}

bool StuckGoroutines::CallsUnnamed(const ManagedStack& stack) {
  return std::ranges::any_of(
      stack.frames, [this](const ManagedFrame& frame) { return IsLooked(frame) && code_.CallsUnnamed(frame.pc_avma); });
}

std::set<uint64_t> StuckGoroutines::WordsOfLocks(std::span<const LockWaiter> waiters) const {
  std::set<uint64_t> words;
  for (const LockWaiter& waiter : waiters) {
    const Goroutine& goroutine = waiter.goroutine;
    uint64_t stack[kWaitBytes / 8];
    const uint64_t wanted_bytes = std::min<uint64_t>(goroutine.stack_hi - goroutine.sched_sp, sizeof(stack));
    const size_t bytes = memory_.ReadSome(goroutine.sched_sp, {reinterpret_cast<uint8_t*>(stack), wanted_bytes});
    for (size_t i = 0; i < bytes / 8; ++i) {
      const bool is_of_stack = stack[i] >= goroutine.stack_lo && stack[i] < goroutine.stack_hi;
      const bool is_code = binary_.FindFunction(stack[i] - bias_).has_value();
      if (stack[i] >= kLeastAvma && stack[i] < kMaxAvma && !is_of_stack && !is_code) words.insert(stack[i]);
    }
  }
  return words;
}

bool StuckGoroutines::Refers(const TaskPlace& place, const std::set<uint64_t>& words) const {
  const uint64_t size_bytes = place.stack_hi_avma - place.sp_avma;
  if (place.sp_avma >= place.stack_hi_avma || size_bytes > kMaxStackBytes) return true;
  const auto bytes = memory_.ReadMemory(place.sp_avma, size_bytes);
  if (!bytes) return true;
  for (size_t at = 0; at + 8 <= bytes->size(); at += 8) {
    uint64_t word;
    memcpy(&word, bytes->data() + at, sizeof(word));
    if (words.contains(word)) return true;
  }
  return false;
}

bool StuckGoroutines::SomeOtherMayHold(std::span<const TaskPlace> all, std::span<const LockWaiter> waiters,
                                       const ManagedFacts& facts) {
  std::set<size_t> waiting;
  for (const LockWaiter& waiter : waiters) {
    waiting.insert(waiter.task);
    const ManagedStack* stack = StackOf(facts, facts.tasks[waiter.task]);
    if (stack == nullptr) return true;
    only_program_ = only_program_ && IsOfProgram(*stack);
  }
  const std::set<uint64_t> words = WordsOfLocks(waiters);
  std::map<const ManagedStack*, bool> calls_unnamed;  // of stacks that hold nothing by name
  for (const TaskPlace& place : all) {
    const ManagedStack* stack = StackOf(facts, facts.tasks[place.task]);
    if (waiting.contains(place.task) || IsAgents(facts.tasks[place.task], stack)) continue;
    if (stack == nullptr) return true;
    const auto [known, is_new] = calls_unnamed.try_emplace(stack);
    if (is_new && MayHold(*stack)) return true;
    if (is_new) known->second = CallsUnnamed(*stack);
    if (known->second && Refers(place, words)) return true;
  }
  return false;
}

bool StuckGoroutines::MayReleaseOrLock(const ManagedStack& stack, const GoLockReleases& releases) const {
  return std::ranges::any_of(stack.frames, [&](const ManagedFrame& frame) {
    const auto function = binary_.FindFunction(frame.pc_avma - bias_);
    return function && (releases.Releases(function->entry) || releases.MayUseLocker(function->entry));
  });
}

bool StuckGoroutines::SomeoneMayRelease(std::span<const TaskPlace> all, std::span<const LockWaiter> waiters,
                                        const ManagedFacts& facts) {
  const auto releases = binary_.LockReleases(deadline_ns_);
  if (releases == nullptr || releases->may_be_called_unseen()) return true;
  std::set<size_t> waiting;
  for (const LockWaiter& waiter : waiters) waiting.insert(waiter.task);
  return std::ranges::any_of(all, [&](const TaskPlace& place) {
    const ManagedStack* stack = StackOf(facts, facts.tasks[place.task]);
    const bool counts = !waiting.contains(place.task) && !IsAgents(facts.tasks[place.task], stack);
    return counts && (stack == nullptr || MayReleaseOrLock(*stack, *releases));
  });
}

void StuckGoroutines::Find(std::span<const TaskPlace> all, std::span<const LockWaiter> waiters, ManagedFacts* facts) {
  if (waiters.empty() || waiters.size() > kMaxWaiters) return;
  if (SomeOtherMayHold(all, waiters, *facts) || SomeoneMayRelease(all, waiters, *facts)) return;
  Looks looks(binary_.layout(), memory_, waiters);
  for (int look = 0; look < kLooks; ++look) {
    if (MonotonicNs() + kBetweenLooksNs > deadline_ns_ || !looks.AllWaitStill()) return;
    std::this_thread::sleep_for(std::chrono::nanoseconds(kBetweenLooksNs));
  }
  for (const LockWaiter& waiter : waiters) facts->stuck_goroutines.push_back(waiter.goroutine.id);
}

}  // namespace stackd
