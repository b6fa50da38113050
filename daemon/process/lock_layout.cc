#include "daemon/process/lock_layout.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>

#include <optional>
#include <string>
#include <string_view>

namespace stackd {
namespace {

// Threads that wait for one lock, locks of it by one thread: more there cannot be.
constexpr uint32_t kMaxCount = 1u << 22;

bool IsTid(uint32_t word) { return word >= 1 && word <= static_cast<uint32_t>(kMaxTid); }

template <typename T>
bool TakeAt(std::span<const uint8_t> memory, size_t offset, T* value) {
  if (offset > memory.size() || memory.size() - offset < sizeof(T)) return false;
  memcpy(value, memory.data() + offset, sizeof(T));
  return true;
}

struct MutexWords {
  uint32_t lock;
  uint32_t count;
  uint32_t owner;
  uint32_t users;
  uint32_t kind;
  int16_t spins;
  int16_t elision;
  uint64_t previous;
  uint64_t next;
};
static_assert(sizeof(MutexWords) == 40);

enum MutexKind : uint32_t {
  kRecursive = 1,
  kAdaptive = 3,
  kTypeMask = 3,
  kRobust = 16,
  kPriorityInherit = 32,
  kPriorityProtect = 64,
  kShared = 128,
  kElision = 256,
  kNoElision = 512,
  kKnownBits = 0x3f3,
};
static_assert(kKnownBits == (kTypeMask | kRobust | kPriorityInherit | kPriorityProtect | kShared | kElision | kNoElision));

bool IsKind(uint32_t kind) {
  constexpr uint32_t kProtocols = kPriorityInherit | kPriorityProtect, kElisions = kElision | kNoElision;
  return (kind & ~kKnownBits) == 0 && (kind & kProtocols) != kProtocols && (kind & kElisions) != kElisions;
}

// The tid of the thread that holds the lock. 0: there is none, or the words make no sense.
uint32_t HolderOf(const MutexWords& mutex) {
  if ((mutex.kind & (kRobust | kPriorityInherit)) != 0) {
    const uint32_t tid = mutex.lock & FUTEX_TID_MASK;
    // INT_MAX in a robust lock: its owner died, and its data may be inconsistent.
    const bool agrees = mutex.owner == tid || ((mutex.kind & kRobust) != 0 && mutex.owner == INT_MAX);
    return agrees && IsTid(tid) ? tid : 0;
  }
  constexpr uint32_t kCeiling = 0xfff80000;
  const uint32_t lock = (mutex.kind & kPriorityProtect) != 0 ? mutex.lock & ~kCeiling : mutex.lock;
  const bool held = lock == 1 || lock == 2;
  return held && IsTid(mutex.owner) ? mutex.owner : 0;
}

bool IsListNode(uint64_t avma) { return avma != 0 && avma < 1ull << 47; }

std::optional<PthreadMutex> MutexOf(const MutexWords& mutex) {
  if (!IsKind(mutex.kind)) return std::nullopt;
  const uint32_t holder = HolderOf(mutex);
  if (holder == 0 || mutex.users < 1 || mutex.users > kMaxCount) return std::nullopt;
  // Counted by those that may be locked again, and set by those with a protocol.
  const bool recursive = (mutex.kind & kTypeMask) == kRecursive;
  const uint32_t least = recursive || (mutex.kind & (kRobust | kPriorityInherit | kPriorityProtect)) != 0 ? 1 : 0;
  if (mutex.count < least || mutex.count > (recursive ? kMaxCount : least)) return std::nullopt;
  const bool may_spin = (mutex.kind & kTypeMask) == kAdaptive;
  if (may_spin ? mutex.spins < 0 : mutex.spins != 0) return std::nullopt;
  if ((mutex.kind & kElision) != 0 ? mutex.elision < 0 : mutex.elision != 0) return std::nullopt;
  const bool listed = (mutex.kind & kRobust) != 0;
  if (listed ? !IsListNode(mutex.previous) || !IsListNode(mutex.next) : (mutex.previous | mutex.next) != 0) {
    return std::nullopt;
  }
  return PthreadMutex{.owner_tid = static_cast<int32_t>(holder),
                      .count = mutex.count,
                      .users = mutex.users,
                      .kind = static_cast<int32_t>(mutex.kind)};
}

// Whether it is a mutex between two owners. glibc takes the word first and then writes the owner and counts a user, and
// goes the other way back.
bool ChangesHands(const MutexWords& mutex) {
  const bool is_plain = IsKind(mutex.kind) && (mutex.kind & (kRobust | kPriorityInherit | kPriorityProtect)) == 0;
  const bool is_taken = mutex.lock == 1 || mutex.lock == 2;
  const bool is_half_told = mutex.users == 0 ? mutex.owner == 0 || IsTid(mutex.owner) : mutex.owner == 0;
  const uint32_t most_locks = (mutex.kind & kTypeMask) == kRecursive ? 1 : 0;
  return is_plain && is_taken && is_half_told && mutex.users <= kMaxCount && mutex.count <= most_locks &&
         (mutex.previous | mutex.next) == 0;
}

struct MuslMutexWords {
  uint32_t type;
  uint32_t lock;
  uint32_t waiters;
  uint32_t zero[2];
  uint32_t count;
  uint64_t previous;
  uint64_t next;
};
static_assert(sizeof(MuslMutexWords) == 40);
constexpr uint32_t kMuslFutexOffset = offsetof(MuslMutexWords, lock);
static_assert(kMuslFutexOffset <= kLockBytesBefore && sizeof(MuslMutexWords) - kMuslFutexOffset <= kLockBytesFrom);

std::optional<PthreadMutex> MuslMutexOf(const MuslMutexWords& mutex) {
  constexpr uint32_t kNormal = 0, kMuslRecursive = 1, kErrorcheck = 2, kMuslTypeMask = 3;
  constexpr uint32_t kMuslRobust = 4, kMuslInherit = 8, kMuslShared = 128;
  constexpr uint32_t kOwnerMask = FUTEX_WAITERS | FUTEX_OWNER_DIED;
  const uint32_t type = mutex.type & kMuslTypeMask, owner = mutex.lock & ~kOwnerMask;
  if ((mutex.type & ~(kMuslTypeMask | kMuslRobust | kMuslInherit | kMuslShared)) != 0 || type > kErrorcheck) {
    return std::nullopt;
  }
  // It must be held, and a thread must wait.
  if ((mutex.lock & FUTEX_WAITERS) == 0 || (mutex.zero[0] | mutex.zero[1]) != 0) return std::nullopt;
  if (mutex.waiters < 1 || mutex.waiters > kMaxCount) return std::nullopt;
  if (mutex.count > (type == kMuslRecursive ? kMaxCount : 0)) return std::nullopt;
  // For a normal mutex that is neither robust nor inherits, musl keeps neither owner nor list.
  const bool keeps_owner = (mutex.type & ~kMuslShared) != kNormal;
  if (keeps_owner ? !IsTid(owner) || !IsListNode(mutex.previous) || !IsListNode(mutex.next)
                  : owner != EBUSY || (mutex.previous | mutex.next) != 0) {
    return std::nullopt;
  }
  const auto bit = [&](uint32_t of_musl, uint32_t of_glibc) { return (mutex.type & of_musl) != 0 ? of_glibc : 0; };
  const uint32_t kind = type | bit(kMuslRobust, kRobust) | bit(kMuslInherit, kPriorityInherit) | bit(kMuslShared, kShared);
  return PthreadMutex{.futex_offset = kMuslFutexOffset,
                      .owner_tid = keeps_owner ? static_cast<int32_t>(owner) : 0,
                      .keeps_owner = keeps_owner,
                      .count = mutex.count + 1,
                      .users = 1,
                      .kind = static_cast<int32_t>(kind)};
}

// Which word of a rwlock the futex is.
enum RwlockWord : size_t { kReaders = 0, kPhase = 8, kWriters = 12 };

struct RwlockWords {
  uint32_t readers;
  uint32_t writers;
  uint32_t phase_futex;
  uint32_t writers_futex;
  uint32_t zero[2];
  uint32_t current_writer;
  uint32_t shared;
  uint64_t more_zeros[2];
  uint32_t flags;
};
constexpr size_t kRwlockBytes = offsetof(RwlockWords, flags) + sizeof(uint32_t);
static_assert(kRwlockBytes == kLockBytesFrom && kWriters == kLockBytesBefore);

bool IsWriter(uint32_t word) { return word == 0 || IsTid(word); }
bool HasKnownEnd(const RwlockWords& lock) {
  return lock.more_zeros[0] == 0 && lock.more_zeros[1] == 0 && lock.flags <= 2 && IsWriter(lock.current_writer);
}

std::optional<GlibcRwlock> RwlockOf(const RwlockWords& lock, RwlockWord futex) {
  constexpr uint32_t kWritePhase = 1, kWriteLocked = 2, kReadersWait = 4, kReaderShift = 3, kFutexUsed = 2;
  const bool write_phase = (lock.readers & kWritePhase) != 0, readers_wait = (lock.readers & kReadersWait) != 0;
  const uint32_t reader_count = lock.readers >> kReaderShift;
  const bool prefers_writers = lock.flags != 0;
  if (!HasKnownEnd(lock) || lock.zero[0] != 0 || lock.zero[1] != 0 || lock.shared > 1) return std::nullopt;
  if (reader_count > kMaxCount || lock.writers > (prefers_writers ? kMaxCount : 0)) return std::nullopt;
  // Threads wait for long only if a writer has the lock, or waits until readers have left it.
  if ((lock.readers & kWriteLocked) == 0) return std::nullopt;
  if (lock.phase_futex > 3 || lock.writers_futex > 3 || (lock.writers_futex & 1) == 0) return std::nullopt;
  if (write_phase != ((lock.phase_futex & 1) != 0) || write_phase != (lock.current_writer != 0)) return std::nullopt;
  if (!write_phase && reader_count == 0) return std::nullopt;
  if (readers_wait && (write_phase || lock.flags != 2)) return std::nullopt;
  switch (futex) {
    case kReaders:
      if (!readers_wait) return std::nullopt;
      break;
    case kPhase:
      if ((lock.phase_futex & kFutexUsed) == 0 || reader_count == 0) return std::nullopt;
      break;
    case kWriters:
      if ((lock.writers_futex & kFutexUsed) == 0) return std::nullopt;
      break;
  }
  return GlibcRwlock{.reader_count = reader_count,
                     .write_locked = true,
                     .writer_tid = static_cast<int32_t>(lock.current_writer),
                     .prefers_writers = prefers_writers,
                     .is_shared = lock.shared != 0};
}

// The same words, as they were before 2.25.
std::optional<GlibcRwlock> OldRwlockOf(const RwlockWords& lock, RwlockWord futex) {
  const uint32_t inner_lock = lock.readers, reader_count = lock.writers;
  const uint32_t readers_queued = lock.zero[0], writers_queued = lock.zero[1];
  const bool write_locked = lock.current_writer != 0, prefers_writers = lock.flags != 0;
  if (!HasKnownEnd(lock) || inner_lock > 2 || (lock.shared != 0 && lock.shared != 128)) return std::nullopt;
  if (reader_count > kMaxCount || readers_queued > kMaxCount || writers_queued > kMaxCount) return std::nullopt;
  if (write_locked != (reader_count == 0)) return std::nullopt;
  const bool readers_may_wait = write_locked || (prefers_writers && writers_queued > 0);
  if (readers_queued > 0 && !readers_may_wait) return std::nullopt;
  switch (futex) {
    case kReaders:
      return std::nullopt;
    case kPhase:
      if (readers_queued == 0) return std::nullopt;
      break;
    case kWriters:
      if (writers_queued == 0) return std::nullopt;
      break;
  }
  return GlibcRwlock{.reader_count = reader_count,
                     .write_locked = write_locked,
                     .writer_tid = static_cast<int32_t>(lock.current_writer),
                     .prefers_writers = prefers_writers,
                     .is_shared = lock.shared != 0};
}

std::optional<GlibcRwlock> RwlockAround(uint64_t avma, std::span<const uint8_t> memory, size_t offset,
                                        RwlockLayout layout) {
  std::optional<GlibcRwlock> found;
  for (RwlockWord futex : {kReaders, kPhase, kWriters}) {
    if (offset < futex || avma < futex || (avma - futex) % alignof(uint64_t) != 0) continue;
    const size_t start = offset - futex;
    if (memory.size() - start < kRwlockBytes) continue;
    RwlockWords lock{};
    memcpy(&lock, memory.data() + start, kRwlockBytes);
    auto rwlock = layout == RwlockLayout::kCurrent ? RwlockOf(lock, futex) : OldRwlockOf(lock, futex);
    if (!rwlock) continue;
    if (found) return std::nullopt;  // what may be two things is neither
    found = rwlock;
    found->avma = avma - futex;
  }
  return found;
}

std::optional<PthreadMutex> MutexAt(uint64_t avma, std::span<const uint8_t> memory, size_t offset) {
  // The futex word's alignment says whether it may be glibc's or musl's.
  if (avma % alignof(uint64_t) == 0) {
    MutexWords mutex;
    return TakeAt(memory, offset, &mutex) ? MutexOf(mutex) : std::nullopt;
  }
  MuslMutexWords mutex;
  if (avma % alignof(uint64_t) != kMuslFutexOffset || offset < kMuslFutexOffset) return std::nullopt;
  return TakeAt(memory, offset - kMuslFutexOffset, &mutex) ? MuslMutexOf(mutex) : std::nullopt;
}

bool ChangesHandsAt(std::span<const uint8_t> memory, size_t offset) {
  MutexWords mutex;
  return TakeAt(memory, offset, &mutex) && ChangesHands(mutex);
}

}  // namespace

RwlockLayout RwlockLayoutOf(const AddressMap& map) {
  constexpr std::string_view kPrefix = "/libc-2.";
  constexpr int kFirstCurrent = 25;
  for (const Mapping& mapping : map.mappings()) {
    const size_t name = mapping.path.rfind(kPrefix);
    if (name == std::string::npos || !mapping.path.ends_with(".so")) continue;
    const int minor = atoi(mapping.path.c_str() + name + kPrefix.size());
    return minor < kFirstCurrent ? RwlockLayout::kBefore2_25 : RwlockLayout::kCurrent;
  }
  return RwlockLayout::kCurrent;
}

FutexWord DecodeFutex(uint64_t avma, std::span<const uint8_t> memory, size_t offset, RwlockLayout layout) {
  FutexWord word{.avma = avma};
  if (!TakeAt(memory, offset, &word.value)) return word;
  word.mutex = MutexAt(avma, memory, offset);
  word.rwlock = RwlockAround(avma, memory, offset, layout);
  if (word.mutex && word.rwlock) {
    word.mutex.reset();
    word.rwlock.reset();
  }
  word.changes_hands = !word.mutex && !word.rwlock && avma % alignof(uint64_t) == 0 && ChangesHandsAt(memory, offset);
  word.is_shared = (word.mutex && (word.mutex->kind & kShared) != 0) || (word.rwlock && word.rwlock->is_shared);
  return word;
}

}  // namespace stackd
