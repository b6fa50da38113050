#include "daemon/managed/hotspot/locks.h"

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/managed/hotspot/objects.h"

namespace stackd::hotspot {
namespace {

constexpr size_t kMaxThreadName = 256;
constexpr uint64_t kMaxLockStack = 64;

// A monitor's owner: nobody (0), somebody who had it before it was a monitor (1), the collector of monitors (2 and others);
// a thread, by address or by number; up to release 23 also where on its stack the thread keeps it (objectMonitor.hpp).
constexpr uint64_t kNobody = 0, kSomebody = 1;

class LockFinder {
 public:
  LockFinder(ProcessMemory* memory, const Layout& layout, const std::vector<JavaThread>& threads, ManagedFacts* facts)
      : memory_(memory), layout_(layout), threads_(threads), facts_(facts), objects_(Objects::Open(memory, layout)) {}

  void Add(const JavaThread& thread) {
    if (objects_) {
      const uint64_t name = objects_->Reference(thread.object_avma, "java.lang.Thread", "name");
      const auto text = name == 0 ? std::nullopt : objects_->Text(name, kMaxThreadName);
      if (text) facts_->threads[thread.tid].name = *text;
    }
    if (thread.pending_monitor_avma != 0) {
      AddMonitor(thread);
    } else if (objects_) {
      AddSynchronizer(thread);
    }
  }

 private:
  void AddMonitor(const JavaThread& waiter) {
    if (layout_.monitor_owner == kNone || layout_.monitor_object == kNone) return;
    const uint64_t monitor_avma = waiter.pending_monitor_avma;
    const auto owner = memory_->Word(monitor_avma + layout_.monitor_owner);
    const auto handle = memory_->Word(monitor_avma + layout_.monitor_object);
    if (!owner || !handle) return;
    // Up to release 16 the field is the object.
    const uint64_t object_avma = layout_.release < 17 ? *handle : memory_->Word(*handle).value_or(0);
    ManagedWait wait;
    wait.kind = ManagedLockKind::kMonitor;
    wait.waiter_tid = waiter.tid;
    wait.owner_tid = OwnerOf(*owner, object_avma);
    wait.lock_avma = object_avma != 0 ? object_avma : monitor_avma;
    if (objects_) wait.lock = objects_->ClassOf(object_avma).value_or("");
    facts_->waits.push_back(std::move(wait));
  }

  int32_t OwnerOf(uint64_t owner, uint64_t object_avma) {
    if (owner == kNobody) return 0;
    if (owner == kSomebody) return OwnerByLockStack(object_avma);
    for (const JavaThread& thread : threads_) {
      const bool is_owner =
          layout_.thread_owner_id != kNone
              ? thread.owner_id == owner
              : thread.thread_avma == owner || (owner >= thread.stack_begin_avma && owner < thread.stack_end_avma);
      if (is_owner) return thread.tid;
    }
    return 0;
  }

  // Each thread lists the objects that it has locked, while nobody waits for them.
  int32_t OwnerByLockStack(uint64_t object_avma) {
    if (object_avma == 0 || layout_.thread_lock_stack == kNone || layout_.lock_stack_top == kNone ||
        layout_.lock_stack_base == kNone) {
      return 0;
    }
    for (const JavaThread& thread : threads_) {
      const uint64_t begin = layout_.thread_lock_stack + layout_.lock_stack_base;
      // Counted from the thread's begin.
      const auto top = memory_->Value<uint32_t>(thread.thread_avma + layout_.thread_lock_stack + layout_.lock_stack_top);
      if (!top || *top < begin || *top - begin > 8 * kMaxLockStack) continue;
      for (uint64_t offset = begin; offset + 8 <= *top; offset += 8) {
        if (memory_->Word(thread.thread_avma + offset) == object_avma) return thread.tid;
      }
    }
    return 0;
  }

  void AddSynchronizer(const JavaThread& waiter) {
    const uint64_t blocker = objects_->Reference(waiter.object_avma, "java.lang.Thread", "parkBlocker");
    if (blocker == 0) return;
    const uint64_t owner =
        objects_->Reference(blocker, "java.util.concurrent.locks.AbstractOwnableSynchronizer", "exclusiveOwnerThread");
    // Nobody has it, or it is something else that threads park for.
    if (owner == 0) return;
    const auto thread = std::ranges::find(threads_, owner, &JavaThread::object_avma);
    ManagedWait wait;
    wait.kind = ManagedLockKind::kMonitor;
    wait.waiter_tid = waiter.tid;
    wait.owner_tid = thread == threads_.end() ? 0 : thread->tid;
    wait.lock_avma = blocker;
    wait.lock = objects_->ClassOf(blocker).value_or("");
    // "java.util.concurrent.locks.ReentrantLock$NonfairSync" is how the class that people use works.
    if (wait.lock.starts_with("java.util.concurrent.")) wait.lock.resize(std::min(wait.lock.find('$'), wait.lock.size()));
    facts_->waits.push_back(std::move(wait));
  }

  ProcessMemory* memory_;
  const Layout& layout_;
  const std::vector<JavaThread>& threads_;
  ManagedFacts* facts_;
  std::optional<Objects> objects_;
};

}  // namespace

void AddLocks(ProcessMemory* memory, const Layout& layout, const std::vector<JavaThread>& threads, ManagedFacts* facts) {
  LockFinder finder(memory, layout, threads, facts);
  for (const JavaThread& thread : threads) finder.Add(thread);
}

}  // namespace stackd::hotspot
