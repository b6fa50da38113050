#include "daemon/managed/hotspot/locks.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/capture/waited_on.h"
#include "daemon/managed/hotspot/java_threads.h"
#include "daemon/managed/hotspot/objects.h"

namespace stackd::hotspot {
namespace {

constexpr size_t kMaxThreadName = 256;
constexpr uint64_t kMaxLockStack = 64;

// How often a moment is waited for at which the VM does not collect, and how long each time.
constexpr int kMaxTries = 20;
constexpr std::chrono::milliseconds kTryPause(5);

// A monitor's owner: no thread (0), the thread that locked the object before it had a monitor (1), the collector of
// monitors (2 and others). Else it is a thread, by address or by number. Up to release 23 it may also be the place on the
// thread's stack where the thread keeps the lock (objectMonitor.hpp).
constexpr uint64_t kNobody = 0, kSomebody = 1;

// How a thread that may wait was captured.
struct Sleeper {
  bool is_in_futex = false;  // else it runs code of the VM: a monitor's waiter wakes now and then, and looks
  bool is_timed = false;
};
using Sleepers = std::unordered_map<int32_t, Sleeper>;

bool IsTimed(const SystemCall& futex_call) {
  constexpr int kTimeout = 3;
  return futex_call.knows(kTimeout) && futex_call.arguments[kTimeout] != 0;
}

Sleepers FindSleepers(const Capture& capture, const CodeCache& code) {
  Sleepers sleepers;
  for (const ThreadCapture& thread : capture.threads) {
    if (!thread.has_stack || code.Holds(thread.registers.value[Registers::kRip])) continue;
    const bool is_in_futex = thread.call && WaitedFutex(*thread.call);
    if (thread.call && !is_in_futex) continue;
    sleepers.emplace(thread.tid, Sleeper{is_in_futex, is_in_futex && IsTimed(*thread.call)});
  }
  return sleepers;
}

Sleepers FindSleepers(std::span<const ThreadWait> sleeping) {
  Sleepers sleepers;
  for (const ThreadWait& wait : sleeping) {
    if (!wait.call || !WaitedFutex(*wait.call)) continue;
    sleepers.emplace(wait.tid, Sleeper{.is_in_futex = true, .is_timed = IsTimed(*wait.call)});
  }
  return sleepers;
}

// Threads by what a monitor or a synchronizer says of its owner.
class Owners {
 public:
  // `objects`: nullptr where they cannot be read.
  Owners(ProcessMemory* memory, const Layout& layout, const std::vector<JavaThread>& threads, Objects* objects)
      : memory_(memory), layout_(layout), threads_(threads), objects_(objects), by_stack_(threads) {
    for (const JavaThread& thread : threads) {
      const bool has_number = layout.thread_owner_id != kNone;
      by_word_.emplace(has_number ? thread.owner_id : thread.thread_avma, thread.tid);
      const uint64_t object_avma = objects == nullptr ? 0 : objects->At(thread.object);
      if (object_avma != 0) by_object_.emplace(object_avma, thread.tid);
    }
    std::ranges::sort(by_stack_, {}, &JavaThread::stack_end_avma);
  }

  // The owner's tid; 0: none, or not known.
  int32_t OfMonitor(uint64_t owner, uint64_t object_avma) {
    if (owner == kNobody) return 0;
    if (owner == kSomebody) return OfLockedObject(object_avma);
    const auto known = by_word_.find(owner);
    if (known != by_word_.end()) return known->second;
    if (layout_.thread_owner_id != kNone) return 0;
    const auto stack = std::ranges::upper_bound(by_stack_, owner, {}, &JavaThread::stack_end_avma);
    return stack != by_stack_.end() && owner >= stack->stack_begin_avma ? stack->tid : 0;
  }

  int32_t OfThreadObject(uint64_t object_avma) const {
    const auto known = by_object_.find(object_avma);
    return known == by_object_.end() ? 0 : known->second;
  }

 private:
  // Each thread lists the objects that it has locked, while no thread waits for them.
  int32_t OfLockedObject(uint64_t object_avma) {
    if (object_avma == 0 || layout_.thread_lock_stack == kNone || layout_.lock_stack_top == kNone ||
        layout_.lock_stack_base == kNone) {
      return 0;
    }
    if (!has_locked_objects_) {
      has_locked_objects_ = true;
      for (const JavaThread& thread : threads_) AddLockedObjects(thread);
    }
    const auto known = by_locked_object_.find(object_avma);
    return known == by_locked_object_.end() ? 0 : known->second;
  }

  void AddLockedObjects(const JavaThread& thread) {
    const uint64_t begin = layout_.thread_lock_stack + layout_.lock_stack_base;
    // Counted from the thread's begin.
    const auto top = memory_->Value<uint32_t>(thread.thread_avma + layout_.thread_lock_stack + layout_.lock_stack_top);
    if (!top || *top < begin || *top - begin > 8 * kMaxLockStack) return;
    for (uint64_t offset = begin; offset + 8 <= *top; offset += 8) {
      const auto object = memory_->Word(thread.thread_avma + offset);
      if (object) by_locked_object_.emplace(objects_ == nullptr ? *object : objects_->AtOnStack(*object), thread.tid);
    }
  }

  ProcessMemory* memory_;
  const Layout& layout_;
  const std::vector<JavaThread>& threads_;
  Objects* objects_;
  std::vector<JavaThread> by_stack_;
  std::unordered_map<uint64_t, int32_t> by_word_, by_object_, by_locked_object_;
  bool has_locked_objects_ = false;
};

class LockReader {
 public:
  LockReader(int64_t deadline_ns, Sleepers sleepers, const Layout& layout, ProcessMemory* memory, ManagedFacts* facts)
      : deadline_ns_(deadline_ns),
        sleepers_(std::move(sleepers)),
        layout_(layout),
        memory_(memory),
        facts_(facts),
        objects_(Objects::Open(memory, layout)) {}

  void Read() {
    bool is_told = Try();
    for (int tries = 1; !is_told && tries < kMaxTries && MonotonicNs() < deadline_ns_; ++tries) {
      std::this_thread::sleep_for(kTryPause);
      is_told = Try();
    }
    if (!is_told) {
      facts_->notes.push_back(
          "names of Java threads and what they wait for are not known: the VM collected garbage whenever it was looked at");
    }
    AddNotes();
  }

  std::vector<ManagedWait> ReadWaits() {
    const auto collections = Collections();
    Sight sight = Look(/*with_names=*/false);
    if (!collections || Collections() != collections) return {};
    return std::move(sight.waits);
  }

 private:
  // What was seen of the threads at one look.
  struct Sight {
    std::map<int32_t, std::string> names;  // by tid
    std::vector<ManagedTask> tasks;
    std::vector<ManagedWait> waits;
  };

  // False, and nothing told, if the VM collected meanwhile: objects move, and what is found may be another one.
  bool Try() {
    const auto collections = Collections();
    if (!collections) return false;
    Sight sight = Look(/*with_names=*/true);
    const Sight again = sight.waits.empty() ? Sight() : Look(/*with_names=*/false);
    if (Collections() != collections) return false;
    Tell(std::move(sight), again);
    return true;
  }

  // How many collections there were; nullopt while there is one that stops the program. Always the same where the VM does
  // not say.
  std::optional<uint32_t> Collections() {
    if (layout_.heap_avma == kNone || layout_.heap_collects == kNone || layout_.heap_collections == kNone) return 0;
    memory_->Forget();
    const uint64_t heap_avma = memory_->Word(layout_.heap_avma).value_or(0);
    if (memory_->Value<uint8_t>(heap_avma + layout_.heap_collects).value_or(0) != 0) return std::nullopt;
    return memory_->Value<uint32_t>(heap_avma + layout_.heap_collections).value_or(0);
  }

  void Tell(Sight sight, const Sight& again) {
    for (auto& [tid, name] : sight.names) facts_->threads[tid].name = std::move(name);
    std::ranges::move(sight.tasks, std::back_inserter(facts_->tasks));
    std::unordered_map<int32_t, const ManagedWait*> by_waiter;
    for (const ManagedWait& wait : again.waits) by_waiter.emplace(wait.waiter_tid, &wait);
    for (ManagedWait& wait : sight.waits) {
      const auto same = by_waiter.find(wait.waiter_tid);
      if (same == by_waiter.end() || same->second->owner_tid != wait.owner_tid ||
          same->second->lock_avma != wait.lock_avma) {
        continue;
      }
      facts_->waits.push_back(std::move(wait));
    }
  }

  void AddNotes() {
    if (is_cut_) facts_->notes.push_back("not all Java locks were looked at: there are too many threads for the time");
    if (!objects_) {
      facts_->notes.push_back("names of Java threads and waits for locks of java.util.concurrent are not known: " +
                              objects_.error().message);
    } else if (objects_->has_moved()) {
      facts_->notes.push_back(
          "names of some Java threads or what they wait for are not known: the collector has moved objects, and not all "
          "references to them are updated");
    }
  }

  Sight Look(bool with_names) {
    memory_->Forget();
    const std::vector<JavaThread> threads = ReadJavaThreads(memory_, layout_);
    Owners owners(memory_, layout_, threads, objects_ ? &*objects_ : nullptr);
    Sight sight;
    for (const JavaThread& thread : threads) {
      if (MonotonicNs() >= deadline_ns_ || memory_->is_full()) {
        is_cut_ = true;
        break;
      }
      if (with_names) {
        AddName(thread, &sight);
        AddVirtualThread(thread, &sight);
      }
      const auto sleeper = sleepers_.find(thread.tid);
      if (sleeper == sleepers_.end()) continue;
      auto wait = thread.pending_monitor_avma != 0 ? MonitorWait(thread, &owners)
                                                   : SynchronizerWait(thread, sleeper->second, owners);
      if (wait) sight.waits.push_back(std::move(*wait));
    }
    return sight;
  }

  void AddName(const JavaThread& thread, Sight* sight) {
    if (!objects_) return;
    const auto name = NameOf(objects_->At(thread.object));
    if (name) sight->names[thread.tid] = *name;
  }

  void AddVirtualThread(const JavaThread& carrier, Sight* sight) {
    if (!objects_ || carrier.current == 0) return;
    const uint64_t object_avma = objects_->At(carrier.current);
    if (objects_->ClassOf(object_avma) != "java.lang.VirtualThread") return;
    ManagedTask task;
    task.kind = ManagedTaskKind::kVirtualThread;
    task.id = objects_->Long(object_avma, "java.lang.Thread", "tid").value_or(0);
    task.name = NameOf(object_avma).value_or("");
    task.state = "running";
    task.tid = carrier.tid;
    sight->tasks.push_back(std::move(task));
  }

  std::optional<std::string> NameOf(uint64_t thread_object_avma) {
    const uint64_t name = objects_->Reference(thread_object_avma, "java.lang.Thread", "name");
    return name == 0 ? std::nullopt : objects_->Text(name, kMaxThreadName);
  }

  std::optional<ManagedWait> MonitorWait(const JavaThread& waiter, Owners* owners) {
    if (layout_.monitor_owner == kNone || layout_.monitor_object == kNone) return std::nullopt;
    const uint64_t monitor_avma = waiter.pending_monitor_avma;
    const auto owner = memory_->Word(monitor_avma + layout_.monitor_owner);
    const auto handle = memory_->Word(monitor_avma + layout_.monitor_object);
    if (!owner || !handle) return std::nullopt;
    // Up to release 16 the field is the object.
    const uint64_t reference = layout_.release < 17 ? *handle : memory_->Word(*handle).value_or(0);
    const uint64_t object_avma = objects_ ? objects_->At(reference) : reference;
    ManagedWait wait;
    wait.kind = ManagedLockKind::kMonitor;
    wait.waiter_tid = waiter.tid;
    wait.owner_tid = owners->OfMonitor(*owner, object_avma);
    if (wait.owner_tid == waiter.tid) return std::nullopt;  // it has got it meanwhile
    wait.lock_avma = object_avma != 0 ? object_avma : monitor_avma;
    if (objects_) wait.lock = objects_->ClassOf(object_avma).value_or("");
    return wait;
  }

  std::optional<ManagedWait> SynchronizerWait(const JavaThread& waiter, const Sleeper& sleeper, const Owners& owners) {
    if (!objects_ || !sleeper.is_in_futex) return std::nullopt;
    const uint64_t blocker = objects_->Reference(objects_->At(waiter.object), "java.lang.Thread", "parkBlocker");
    if (blocker == 0) return std::nullopt;
    uint64_t owner =
        objects_->Reference(blocker, "java.util.concurrent.locks.AbstractOwnableSynchronizer", "exclusiveOwnerThread");
    int32_t owner_tid = owners.OfThreadObject(owner);
    if (owner_tid == waiter.tid) return std::nullopt;  // it has got it meanwhile
    // The lock names one of the threads that have it to read. That one may wait for itself: to write.
    if (owner == 0) {
      owner = objects_->Reference(blocker, "java.util.concurrent.locks.ReentrantReadWriteLock$Sync", "firstReader");
      owner_tid = owners.OfThreadObject(owner);
    }
    // It has no owner, or it is something else that threads park for.
    if (owner == 0) return std::nullopt;
    ManagedWait wait;
    wait.kind = ManagedLockKind::kMonitor;
    wait.waiter_tid = waiter.tid;
    // tryLock(timeout) gives up, so it is part of no cycle. (A monitor's waiter may sleep for a time and look again.)
    wait.owner_tid = sleeper.is_timed ? 0 : owner_tid;
    wait.lock_avma = blocker;
    wait.lock = objects_->ClassOf(blocker).value_or("");
    // "java.util.concurrent.locks.ReentrantLock$NonfairSync" is how the class that people use works.
    if (wait.lock.starts_with("java.util.concurrent.")) wait.lock.resize(std::min(wait.lock.find('$'), wait.lock.size()));
    return wait;
  }

  const int64_t deadline_ns_;
  const Sleepers sleepers_;
  const Layout& layout_;
  ProcessMemory* memory_;
  ManagedFacts* facts_;
  Result<Objects> objects_;
  bool is_cut_ = false;
};

}  // namespace

void AddLocks(const RuntimeInput& input, const Layout& layout, const CodeCache& code, ProcessMemory* memory,
              ManagedFacts* facts) {
  LockReader(input.deadline_ns, FindSleepers(input.capture, code), layout, memory, facts).Read();
}

std::vector<ManagedWait> ReadLockWaits(std::span<const ThreadWait> sleeping, int64_t deadline_ns, const Layout& layout,
                                       ProcessMemory* memory) {
  ManagedFacts unused;
  return LockReader(deadline_ns, FindSleepers(sleeping), layout, memory, &unused).ReadWaits();
}

}  // namespace stackd::hotspot
