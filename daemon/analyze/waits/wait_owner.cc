#include "daemon/analyze/waits/wait_owner.h"

#include <linux/futex.h>

#include "daemon/analyze/waits/wait_graph.h"
#include "daemon/base/printable.h"

namespace stackd {
namespace {

using Wait = v1::Wait;

WaitOwner NotKnown(std::string note) { return {Wait::NOT_KNOWN, 0, "owner unknown: " + std::move(note)}; }
WaitOwner NotRecorded(std::string note) { return {Wait::NOT_RECORDED, 0, std::move(note)}; }

// Another process may have written the tid, and its PID namespace counts threads anew.
WaitOwner OwnerInSharedMemory(const FutexWord& futex, int32_t owner_tid, const std::set<int32_t>& tids) {
  const std::string thread = "thread " + std::to_string(owner_tid);
  if (tids.contains(owner_tid)) {
    return {Wait::OTHER_PROCESS, 0,
            "owner: " + thread + " of this process, or one with the same number in another PID namespace"};
  }
  if (futex.owner_pid != 0) {
    return {Wait::OTHER_PROCESS, 0,
            "held by " + thread + " of " + PrintableText(futex.owner_process_name) + " (pid " +
                std::to_string(futex.owner_pid) + ")"};
  }
  return {Wait::OTHER_PROCESS, 0,
          "owner: " + thread + " of another process, perhaps in another PID namespace, or of one that has ended"};
}

WaitOwner OwnerByTid(const FutexWord& futex, int32_t owner_tid, const std::set<int32_t>& tids) {
  if (futex.is_shared) return OwnerInSharedMemory(futex, owner_tid, tids);
  if (tids.contains(owner_tid)) return {Wait::KNOWN, owner_tid, ""};
  return {Wait::GONE, owner_tid,
          "its owner " + std::to_string(owner_tid) +
              " is no thread of this process: it ended, or this process was forked while it held the lock"};
}

// The lock is free for an instant: a thread that waits for it is about to get it, or to fall asleep anew.
WaitOwner PassedOn(bool is_free) {
  return {Wait::NONE, 0, is_free ? "it was free when it was read" : "it was being passed on when it was read"};
}

std::string_view MakerOfOwnerless(LockMaker maker) {
  switch (maker) {
    case LockMaker::kRust:
      return "Rust's";
    case LockMaker::kParkingLot:
      return "parking_lot's";
    case LockMaker::kAbseil:
      return "Abseil's";
    case LockMaker::kFolly:
      return "folly's";
    case LockMaker::kGo:
      return "Go's";
    default:
      return "";
  }
}

WaitOwner OwnerOfMutex(const FutexWord& futex, const std::set<int32_t>& tids) {
  if (!futex.mutex && futex.value == 0) return PassedOn(true);
  if (!futex.mutex && futex.changes_hands) return PassedOn(false);
  if (!futex.mutex) return NotKnown("what lies there makes no sense as a mutex of glibc or musl");
  if (!futex.mutex->keeps_owner) return NotRecorded("owner unknown: musl's normal mutex keeps none");
  if (futex.mutex->owner_tid == 0) return PassedOn(futex.value == 0);
  return OwnerByTid(futex, futex.mutex->owner_tid, tids);
}

WaitOwner OwnerOfRwlock(const FutexWord& futex, const std::set<int32_t>& tids) {
  if (!futex.rwlock) return NotKnown("what lies there makes no sense as an rwlock of glibc");
  const GlibcRwlock& lock = *futex.rwlock;
  if (lock.writer_tid != 0) return OwnerByTid(futex, lock.writer_tid, tids);
  // A writer that waits until readers have left has taken the place of the next one already.
  if (lock.reader_count == 0) return PassedOn(!lock.write_locked);
  const std::string readers = lock.reader_count == 1 ? "1 reader" : std::to_string(lock.reader_count) + " readers";
  if (futex.is_shared) {
    return {Wait::OTHER_PROCESS, 0, "held by " + readers + ", perhaps of other processes; glibc does not record which"};
  }
  return NotRecorded("held by " + readers + "; glibc does not record which");
}

// A thread that ends has the kernel clear its tid.
WaitOwner OwnerOfJoin(int32_t tid, const FutexWord& futex, const std::set<int32_t>& tids) {
  if (futex.thread_tid != tid && tids.contains(futex.thread_tid)) return {Wait::KNOWN, futex.thread_tid, ""};
  if (futex.value == 0) return PassedOn(true);
  const auto target = static_cast<int32_t>(futex.value);
  if (target == tid || !tids.contains(target)) return NotKnown("what lies there is no thread of this process");
  return {Wait::KNOWN, target, ""};
}

bool IsPriorityInheritance(const SystemCall& call) {
  const auto command = static_cast<uint32_t>(call.arguments[1]) & FUTEX_CMD_MASK;
  return call.knows(1) && (command == FUTEX_LOCK_PI || command == FUTEX_LOCK_PI2);
}

}  // namespace

WaitOwner FindWaitOwner(Wait::Kind kind, LockMaker maker, int32_t tid, const SystemCall* call, const FutexWord* futex,
                        const std::set<int32_t>& tids) {
  switch (kind) {
    case Wait::MUTEX:
    case Wait::RWLOCK_READ:
    case Wait::RWLOCK_WRITE: {
      // The thread was awake when it was asked, on its way out of the call or into it.
      if (call != nullptr && !WaitedFutex(*call)) return {Wait::NONE, 0, "whether it still waits is not known"};
      const char* lock = kind == Wait::MUTEX ? "mutex" : "rwlock";
      const bool is_free_of_rust =
          maker == LockMaker::kRust && kind == Wait::MUTEX && futex != nullptr && futex->value == 0;
      if (is_free_of_rust) return PassedOn(true);
      if (const std::string_view whose = MakerOfOwnerless(maker); !whose.empty()) {
        return NotRecorded("owner unknown: " + std::string(whose) + " " + lock + " keeps none");
      }
      if (futex == nullptr) return NotKnown("the lock could not be read");
      if (kind != Wait::MUTEX) return OwnerOfRwlock(*futex, tids);
      // Nothing but the tid in the word counts for the kernel.
      if (call != nullptr && WaitedFutex(*call) == futex->avma && IsPriorityInheritance(*call)) {
        const auto owner_tid = static_cast<int32_t>(futex->value & FUTEX_TID_MASK);
        return owner_tid == 0 ? PassedOn(true) : OwnerByTid(*futex, owner_tid, tids);
      }
      return OwnerOfMutex(*futex, tids);
    }
    case Wait::JOIN:
      return futex == nullptr ? NotKnown("the thread's tid could not be read") : OwnerOfJoin(tid, *futex, tids);
    case Wait::ONCE:
      return NotRecorded("it is not recorded which thread runs it");
    case Wait::INTERNAL_LOCK:
      if (futex != nullptr && futex->stdio_owner_tid != 0) return OwnerByTid(*futex, futex->stdio_owner_tid, tids);
      return NotRecorded("owner unknown: this lock keeps none");
    case Wait::FUTURE:
      return NotRecorded("it is not recorded who is to set it");
    case Wait::FUTEX:
      return NotKnown("no function is known that waits here");
    default:
      return {Wait::NONE, 0, ""};
  }
}

std::string MutexKindInWords(int32_t kind) {
  constexpr const char* kTypes[] = {"normal", "recursive", "errorcheck", "adaptive"};
  constexpr int32_t kRobust = 16, kInherits = 32, kProtects = 64, kShared = 128;
  std::string text = kTypes[kind & 3];
  if ((kind & kRobust) != 0) text += ", robust";
  if ((kind & kInherits) != 0) text += ", priority inheritance";
  if ((kind & kProtects) != 0) text += ", priority protection";
  if ((kind & kShared) != 0) text += ", shared";
  return text;
}

}  // namespace stackd
