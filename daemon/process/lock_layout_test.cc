#include "daemon/process/lock_layout.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

namespace stackd {
namespace {

constexpr uint64_t kAvma = 0x7f0000001000;

// The word at `offset` of `words`, which lie at an address of which the lowest bits are those of `offset`.
FutexWord DecodeWords(const std::vector<uint32_t>& words, size_t index = 0, RwlockLayout layout = RwlockLayout::kCurrent) {
  std::vector<uint8_t> memory(words.size() * 4);
  memcpy(memory.data(), words.data(), memory.size());
  return DecodeFutex(kAvma + 4 * index, memory, 4 * index, layout);
}

template <typename Lock>
FutexWord DecodeLock(const Lock& lock, size_t offset = 0) {
  std::vector<uint8_t> memory(sizeof(lock));
  memcpy(memory.data(), &lock, sizeof(lock));
  return DecodeFutex(reinterpret_cast<uint64_t>(&lock) + offset, memory, offset, RwlockLayout::kCurrent);
}

// What must become true of memory that other threads write.
template <typename Lock>
void AwaitWord(const Lock& lock, size_t offset, const std::function<bool(uint32_t)>& holds) {
  const auto* word = reinterpret_cast<const uint32_t*>(reinterpret_cast<const char*>(&lock) + offset);
  while (!holds(__atomic_load_n(word, __ATOMIC_SEQ_CST))) sched_yield();
}

// --- glibc's mutexes, as this machine's makes them ---

struct Kind {
  const char* name;
  int type;
  bool robust;
  int protocol;
};

class RealMutexTest : public testing::TestWithParam<Kind> {
 protected:
  RealMutexTest() {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, GetParam().type);
    if (GetParam().robust) pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_setprotocol(&attributes, GetParam().protocol);
    EXPECT_EQ(pthread_mutex_init(&mutex_, &attributes), 0);
  }

  pthread_mutex_t mutex_;
};

TEST_P(RealMutexTest, HeldAndWaitedForIsKnownWithItsOwner) {
  ASSERT_EQ(pthread_mutex_lock(&mutex_), 0);
  std::thread waiter([this] {
    EXPECT_EQ(pthread_mutex_lock(&mutex_), 0);
    pthread_mutex_unlock(&mutex_);
  });
  AwaitWord(mutex_, 0, [](uint32_t lock) { return lock == 2 || lock >> 31 == 1; });
  FutexWord word = DecodeLock(mutex_);
  ASSERT_TRUE(word.mutex.has_value());
  EXPECT_EQ(word.mutex->owner_tid, gettid());
  EXPECT_EQ(word.mutex->users, 1u);
  EXPECT_EQ(word.mutex->kind & 3, GetParam().type);
  const bool plain = GetParam().type != PTHREAD_MUTEX_RECURSIVE && !GetParam().robust && GetParam().protocol == 0;
  EXPECT_EQ(word.mutex->count, plain ? 0u : 1u);
  EXPECT_FALSE(word.rwlock.has_value());
  pthread_mutex_unlock(&mutex_);
  waiter.join();
}

TEST_P(RealMutexTest, ThatNobodyHoldsIsNone) {
  EXPECT_FALSE(DecodeLock(mutex_).mutex.has_value());
  pthread_mutex_lock(&mutex_);
  pthread_mutex_unlock(&mutex_);
  EXPECT_FALSE(DecodeLock(mutex_).mutex.has_value());
}

INSTANTIATE_TEST_SUITE_P(OfEveryKind, RealMutexTest,
                         testing::Values(Kind{"Normal", PTHREAD_MUTEX_NORMAL, false, PTHREAD_PRIO_NONE},
                                         Kind{"Recursive", PTHREAD_MUTEX_RECURSIVE, false, PTHREAD_PRIO_NONE},
                                         Kind{"ErrorCheck", PTHREAD_MUTEX_ERRORCHECK, false, PTHREAD_PRIO_NONE},
                                         Kind{"Adaptive", PTHREAD_MUTEX_ADAPTIVE_NP, false, PTHREAD_PRIO_NONE},
                                         Kind{"Robust", PTHREAD_MUTEX_NORMAL, true, PTHREAD_PRIO_NONE},
                                         Kind{"RobustRecursive", PTHREAD_MUTEX_RECURSIVE, true, PTHREAD_PRIO_NONE},
                                         Kind{"Inherit", PTHREAD_MUTEX_NORMAL, false, PTHREAD_PRIO_INHERIT},
                                         Kind{"RobustInherit", PTHREAD_MUTEX_ERRORCHECK, true, PTHREAD_PRIO_INHERIT}),
                         [](const testing::TestParamInfo<Kind>& info) { return info.param.name; });

TEST(LockLayout, AMutexOfCppIsAPthreadMutex) {
  std::mutex mutex;
  mutex.lock();
  FutexWord word = DecodeLock(mutex);
  ASSERT_TRUE(word.mutex.has_value());
  EXPECT_EQ(word.mutex->owner_tid, gettid());
  mutex.unlock();
}

TEST(LockLayout, AMutexWithThreadsOnItsConditionVariableHasMoreUsers) {
  std::mutex mutex;
  std::condition_variable changed;
  bool go = false;
  std::atomic<int> waiting{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; i++) {
    threads.emplace_back([&] {
      std::unique_lock lock(mutex);
      waiting++;
      changed.wait(lock, [&] { return go; });
    });
  }
  while (waiting != 3) sched_yield();
  {
    std::lock_guard lock(mutex);
    FutexWord word = DecodeLock(mutex);
    ASSERT_TRUE(word.mutex.has_value());
    EXPECT_EQ(word.mutex->users, 4u);
    go = true;
    changed.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
}

// --- musl's mutexes: words as its sources have them; the end-to-end test of musl has real ones ---

constexpr uint32_t kWaiters = 1u << 31, kNormalHeld = EBUSY | kWaiters;

// Decodes the mutex as a waiter sees it, which sleeps on the second word.
std::optional<PthreadMutex> DecodeMusl(uint32_t type, uint32_t lock, uint32_t waiters, uint32_t count, uint64_t list) {
  const auto low = static_cast<uint32_t>(list), high = static_cast<uint32_t>(list >> 32);
  return DecodeWords({type, lock, waiters, 0, 0, count, low, high, low, high}, 1).mutex;
}

constexpr uint64_t kList = 0x7f0000002000;

TEST(MuslMutex, AllButNormalOnesHaveTheirOwner) {
  struct {
    uint32_t type, count;
    int32_t kind;
  } cases[] = {{1, 0, 1}, {1, 2, 1}, {2, 0, 2}, {4, 0, 16}, {2 | 4, 0, 18}, {1 | 8, 0, 33}, {2 | 128, 0, 130}};
  for (const auto& one : cases) {
    const auto mutex = DecodeMusl(one.type, 4711 | kWaiters, 1, one.count, kList);
    ASSERT_TRUE(mutex.has_value()) << one.type;
    EXPECT_EQ(mutex->owner_tid, 4711);
    EXPECT_TRUE(mutex->keeps_owner);
    EXPECT_EQ(mutex->count, one.count + 1);
    EXPECT_EQ(mutex->kind, one.kind);
    EXPECT_EQ(mutex->futex_offset, 4u);
  }
}

TEST(MuslMutex, ANormalOneIsKnownAndKeepsNoOwner) {
  for (uint32_t shared : {0, 128}) {
    const auto mutex = DecodeMusl(shared, kNormalHeld, 3, 0, 0);
    ASSERT_TRUE(mutex.has_value());
    EXPECT_FALSE(mutex->keeps_owner);
    EXPECT_EQ(mutex->owner_tid, 0);
  }
}

TEST(MuslMutex, WhatIsNoStateThatThreadsWaitInIsNotBelieved) {
  EXPECT_FALSE(DecodeMusl(0, kNormalHeld, 0, 0, 0)) << "nobody waits";
  EXPECT_FALSE(DecodeMusl(0, EBUSY, 1, 0, 0)) << "the word says that nobody waits";
  EXPECT_FALSE(DecodeMusl(0, 4711 | kWaiters, 1, 0, 0)) << "a normal one has no tid";
  EXPECT_FALSE(DecodeMusl(0, kNormalHeld, 1, 0, kList)) << "and is in no list";
  EXPECT_FALSE(DecodeMusl(0, kNormalHeld, 1, 1, 0)) << "and is not counted";
  EXPECT_FALSE(DecodeMusl(1, 4711 | kWaiters, 1, 0, 0)) << "others are in one";
  EXPECT_FALSE(DecodeMusl(1, kWaiters, 1, 0, kList)) << "and have an owner";
  EXPECT_FALSE(DecodeMusl(3, 4711 | kWaiters, 1, 0, kList)) << "no such type";
  EXPECT_FALSE(DecodeMusl(16, 4711 | kWaiters, 1, 0, kList)) << "no such flag";
  EXPECT_FALSE(DecodeWords({0, kNormalHeld, 1, 7, 0, 0, 0, 0, 0, 0}, 1).mutex) << "padding";
  EXPECT_FALSE(DecodeWords({0, kNormalHeld, 1, 0, 0, 0}, 1).mutex) << "cut";
  EXPECT_FALSE(DecodeWords({kNormalHeld, 1, 0, 0, 0, 0, 0, 0, 0}, 0).mutex) << "what is before it could not be read";
}

// --- Mutexes that no glibc has ---

constexpr uint32_t kLocked = 2, kOwner = 4711;

std::vector<uint32_t> NormalMutex() { return {kLocked, 0, kOwner, 1, 0, 0, 0, 0, 0, 0}; }

TEST(LockLayout, ANormalMutexIsBelieved) { EXPECT_TRUE(DecodeWords(NormalMutex()).mutex.has_value()); }

TEST(LockLayout, EachFieldThatMakesNoSenseIsEnoughToRefuse) {
  struct Change {
    size_t index;
    uint32_t value;
  };
  for (auto [index, value] :
       std::vector<Change>{{0, 0},          {0, 3},     {0, 0x80000000}, {1, 1},          {2, 0}, {2, (1u << 22) + 1},
                           {2, 0xffffffff}, {3, 0},     {3, 0x10000000}, {4, 1},          {4, 4}, {4, 16},
                           {4, 96},         {4, 0x400}, {4, 0x300},      {4, 0xffffffff}, {5, 1}, {5, 1u << 16},
                           {6, 1},          {7, 1},     {8, 1},          {9, 0x7fff}}) {
    std::vector<uint32_t> words = NormalMutex();
    words[index] = value;
    EXPECT_FALSE(DecodeWords(words).mutex.has_value()) << index << " " << value;
  }
}

TEST(LockLayout, AMutexBetweenTwoOwnersChangesHands) {
  // The word is taken, and the owner, or the count of users, is not written yet.
  for (const auto& words : std::vector<std::vector<uint32_t>>{{kLocked, 0, 0, 0, 0, 0, 0, 0, 0, 0},
                                                              {1, 0, kOwner, 0, 0, 0, 0, 0, 0, 0},
                                                              {kLocked, 0, 0, 1, 0, 0, 0, 0, 0, 0},
                                                              {kLocked, 1, 0, 1, 1, 0, 0, 0, 0, 0}}) {
    EXPECT_TRUE(DecodeWords(words).changes_hands);
    EXPECT_FALSE(DecodeWords(words).mutex.has_value());
  }
  EXPECT_FALSE(DecodeWords(NormalMutex()).changes_hands);
  // Free, owned by no tid that there can be, robust, counted, in a list, cut.
  for (const auto& words : std::vector<std::vector<uint32_t>>{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
                                                              {kLocked, 0, 0xffffffff, 0, 0, 0, 0, 0, 0, 0},
                                                              {kLocked, 0, 0, 0, 16, 0, 0, 0, 0, 0},
                                                              {kLocked, 1, 0, 0, 0, 0, 0, 0, 0, 0},
                                                              {kLocked, 0, 0, 0, 0, 0, 1, 0, 0, 0},
                                                              {kLocked, 0, 0, 0, 0, 0, 0, 0, 0}}) {
    EXPECT_FALSE(DecodeWords(words).changes_hands);
  }
}

TEST(LockLayout, ARecursiveMutexThatIsLockedHasACount) {
  EXPECT_FALSE(DecodeWords({kLocked, 0, kOwner, 1, 1, 0, 0, 0, 0, 0}).mutex.has_value());
  EXPECT_TRUE(DecodeWords({kLocked, 2, kOwner, 1, 1, 0, 0, 0, 0, 0}).mutex.has_value());
}

TEST(LockLayout, ARobustMutexIsHeldByWhomItsWordNames) {
  const uint32_t kWaiters = 0x80000000;
  EXPECT_TRUE(DecodeWords({kWaiters | kOwner, 1, kOwner, 1, 16, 0, 8, 1, 8, 2}).mutex.has_value());
  EXPECT_FALSE(DecodeWords({kWaiters | 5, 1, kOwner, 1, 16, 0, 8, 1, 8, 2}).mutex.has_value());
  EXPECT_FALSE(DecodeWords({kWaiters | kOwner, 1, kOwner, 1, 16, 0, 0, 0, 0, 0}).mutex.has_value()) << "in no list";
  auto inconsistent = DecodeWords({kWaiters | kOwner, 1, 0x7fffffff, 1, 16, 0, 8, 1, 8, 2});
  ASSERT_TRUE(inconsistent.mutex.has_value());
  EXPECT_EQ(inconsistent.mutex->owner_tid, static_cast<int32_t>(kOwner));
}

TEST(LockLayout, AWordThatIsNotAlignedAsALockIsNone) {
  std::vector<uint32_t> words = NormalMutex();
  words.insert(words.begin(), 0);
  EXPECT_FALSE(DecodeWords(words, 1).mutex.has_value());
}

TEST(LockLayout, AMutexOfWhichAPartCannotBeReadIsNone) {
  std::vector<uint32_t> words = NormalMutex();
  words.pop_back();
  FutexWord word = DecodeWords(words);
  EXPECT_EQ(word.value, kLocked);
  EXPECT_FALSE(word.mutex.has_value());
}

// --- glibc's rwlocks, as this machine's makes them ---

class RealRwlockTest : public testing::Test {
 protected:
  static constexpr size_t kReaders = 0, kPhase = 8, kWriters = 12;

  explicit RealRwlockTest(int kind = PTHREAD_RWLOCK_PREFER_READER_NP) {
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, kind);
    EXPECT_EQ(pthread_rwlock_init(&lock_, &attributes), 0);
  }
  ~RealRwlockTest() override {
    for (std::thread& thread : threads_) thread.join();
  }

  void StartReader() {
    threads_.emplace_back([this] {
      pthread_rwlock_rdlock(&lock_);
      pthread_rwlock_unlock(&lock_);
    });
  }
  void StartWriter() {
    threads_.emplace_back([this] {
      pthread_rwlock_wrlock(&lock_);
      pthread_rwlock_unlock(&lock_);
    });
  }
  void AwaitWaiterAt(size_t offset) {
    AwaitWord(lock_, offset, [](uint32_t word) { return (word & 2) != 0; });
  }
  uint64_t avma() const { return reinterpret_cast<uint64_t>(&lock_); }

  pthread_rwlock_t lock_;
  std::vector<std::thread> threads_;
};

TEST_F(RealRwlockTest, AReaderThatWaitsForAWriterSeesWhoItIs) {
  pthread_rwlock_wrlock(&lock_);
  StartReader();
  AwaitWaiterAt(kPhase);
  FutexWord word = DecodeLock(lock_, kPhase);
  ASSERT_TRUE(word.rwlock.has_value());
  EXPECT_EQ(word.rwlock->avma, avma());
  EXPECT_EQ(word.rwlock->writer_tid, gettid());
  EXPECT_TRUE(word.rwlock->write_locked);
  EXPECT_EQ(word.rwlock->reader_count, 1u);
  EXPECT_FALSE(word.rwlock->prefers_writers);
  EXPECT_FALSE(word.mutex.has_value());
  pthread_rwlock_unlock(&lock_);
}

TEST_F(RealRwlockTest, AWriterThatWaitsForAWriterSeesWhoItIs) {
  pthread_rwlock_wrlock(&lock_);
  StartWriter();
  AwaitWaiterAt(kWriters);
  FutexWord word = DecodeLock(lock_, kWriters);
  ASSERT_TRUE(word.rwlock.has_value());
  EXPECT_EQ(word.rwlock->writer_tid, gettid());
  EXPECT_EQ(word.rwlock->avma, avma());
  pthread_rwlock_unlock(&lock_);
}

TEST_F(RealRwlockTest, AWriterThatWaitsForReadersSeesHowManyThereAre) {
  pthread_rwlock_rdlock(&lock_);
  pthread_rwlock_rdlock(&lock_);
  StartWriter();
  AwaitWaiterAt(kPhase);
  FutexWord word = DecodeLock(lock_, kPhase);
  ASSERT_TRUE(word.rwlock.has_value());
  EXPECT_EQ(word.rwlock->reader_count, 2u);
  EXPECT_EQ(word.rwlock->writer_tid, 0);
  EXPECT_TRUE(word.rwlock->write_locked);
  pthread_rwlock_unlock(&lock_);
  pthread_rwlock_unlock(&lock_);
}

TEST_F(RealRwlockTest, ALockThatIsFreeIsNone) {
  for (size_t offset : {kReaders, kPhase, kWriters}) {
    EXPECT_FALSE(DecodeLock(lock_, offset).rwlock.has_value());
    pthread_rwlock_wrlock(&lock_);
    pthread_rwlock_unlock(&lock_);
    EXPECT_FALSE(DecodeLock(lock_, offset).rwlock.has_value());
    pthread_rwlock_rdlock(&lock_);
    pthread_rwlock_unlock(&lock_);
  }
}

class WriterFirstRwlockTest : public RealRwlockTest {
 protected:
  WriterFirstRwlockTest() : RealRwlockTest(PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP) {}
};

TEST_F(WriterFirstRwlockTest, AReaderThatWaitsBehindAWriterIsKnown) {
  pthread_rwlock_rdlock(&lock_);
  StartWriter();
  AwaitWaiterAt(kPhase);
  StartReader();
  AwaitWord(lock_, kReaders, [](uint32_t readers) { return (readers & 4) != 0; });
  FutexWord word = DecodeLock(lock_, kReaders);
  ASSERT_TRUE(word.rwlock.has_value());
  EXPECT_EQ(word.rwlock->avma, avma());
  EXPECT_EQ(word.rwlock->reader_count, 1u);
  EXPECT_TRUE(word.rwlock->prefers_writers);
  pthread_rwlock_unlock(&lock_);
}

// --- rwlocks as they were before glibc 2.25 ---

struct OldRwlock {
  uint32_t lock = 0, reader_count = 0, readers_wakeup = 17, writer_wakeup = 18;
  uint32_t readers_queued = 0, writers_queued = 0, writer = 0, shared = 0;
  uint32_t flags = 0;

  FutexWord Decode(size_t index) const {
    return DecodeWords({lock, reader_count, readers_wakeup, writer_wakeup, readers_queued, writers_queued, writer, shared,
                        0, 0, 0, 0, flags},
                       index, RwlockLayout::kBefore2_25);
  }
};

TEST(OldRwlock, HeldByAWriterIsKnownToReadersAndWriters) {
  OldRwlock lock{.readers_queued = 3, .writers_queued = 1, .writer = kOwner};
  for (size_t index : {2, 3}) {
    FutexWord word = lock.Decode(index);
    ASSERT_TRUE(word.rwlock.has_value()) << index;
    EXPECT_EQ(word.rwlock->avma, kAvma);
    EXPECT_EQ(word.rwlock->writer_tid, static_cast<int32_t>(kOwner));
    EXPECT_TRUE(word.rwlock->write_locked);
    EXPECT_EQ(word.rwlock->reader_count, 0u);
  }
}

TEST(OldRwlock, HeldByReadersIsKnownToAWriter) {
  FutexWord word = OldRwlock{.reader_count = 2, .writers_queued = 1}.Decode(3);
  ASSERT_TRUE(word.rwlock.has_value());
  EXPECT_EQ(word.rwlock->reader_count, 2u);
  EXPECT_EQ(word.rwlock->writer_tid, 0);
}

TEST(OldRwlock, ThatNobodyWaitsForOrThatContradictsItselfIsNone) {
  EXPECT_FALSE((OldRwlock{.readers_queued = 1, .writer = kOwner}.Decode(3).rwlock)) << "no writer waits";
  EXPECT_FALSE((OldRwlock{.writers_queued = 1, .writer = kOwner}.Decode(2).rwlock)) << "no reader waits";
  EXPECT_FALSE((OldRwlock{.reader_count = 1, .writers_queued = 1, .writer = kOwner}.Decode(3).rwlock)) << "held twice";
  EXPECT_FALSE((OldRwlock{.writers_queued = 1}.Decode(3).rwlock)) << "held by nobody";
  EXPECT_FALSE((OldRwlock{.reader_count = 1, .readers_queued = 1}.Decode(2).rwlock)) << "readers do not wait for readers";
  EXPECT_FALSE((OldRwlock{.lock = 3, .writers_queued = 1, .writer = kOwner}.Decode(3).rwlock));
  EXPECT_FALSE((OldRwlock{.writers_queued = 1, .writer = 1u << 23}.Decode(3).rwlock));
  EXPECT_FALSE((OldRwlock{.writers_queued = 1, .writer = kOwner, .shared = 7}.Decode(3).rwlock));
  EXPECT_FALSE((OldRwlock{.writers_queued = 1, .writer = kOwner, .flags = 3}.Decode(3).rwlock));
}

TEST(OldRwlock, ThatMayAsWellBeAMutexIsNeither) {
  // Two wake-ups of readers so far; five readers and a writer wait: as a mutex, that thread 5 holds it.
  OldRwlock lock{.reader_count = 1, .readers_wakeup = 2, .writer_wakeup = 0, .readers_queued = 5, .writers_queued = 1};
  FutexWord word = lock.Decode(2);
  ASSERT_TRUE(word.mutex.has_value()) << "readers do not wait for readers";
  lock.flags = 2;
  word = lock.Decode(2);
  EXPECT_FALSE(word.mutex.has_value());
  EXPECT_FALSE(word.rwlock.has_value());
}

AddressMap MapOf(const std::string& path) {
  return AddressMap({Mapping{.start_avma = 0x1000,
                             .end_avma = 0x2000,
                             .file_offset = 0,
                             .readable = true,
                             .writable = false,
                             .executable = true,
                             .path = path}});
}

TEST(OldRwlock, IsOfAGlibcWhoseFileSaysSo) {
  EXPECT_EQ(RwlockLayoutOf(MapOf("/lib64/libc-2.17.so")), RwlockLayout::kBefore2_25);
  EXPECT_EQ(RwlockLayoutOf(MapOf("/lib64/libc-2.24.so")), RwlockLayout::kBefore2_25);
  EXPECT_EQ(RwlockLayoutOf(MapOf("/lib64/libc-2.25.so")), RwlockLayout::kCurrent);
  EXPECT_EQ(RwlockLayoutOf(MapOf("/lib/x86_64-linux-gnu/libc.so.6")), RwlockLayout::kCurrent);
  EXPECT_EQ(RwlockLayoutOf(MapOf("/srv/libc-2.99999999999999999999")), RwlockLayout::kCurrent);
}

// --- Locks of others ---

TEST(LockLayout, LocksOfOtherLibrariesAreNone) {
  struct Other {
    const char* what;
    std::vector<uint32_t> words;
    size_t futex;
  };
  for (const auto& [what, words, futex] :
       std::vector<Other>{{"Rust's Mutex, contended, over zeros", {2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0},
                          {"Rust's Mutex over a String", {2, 0, 0x55550010, 0x5555, 40, 0, 12, 0, 0, 0, 0, 0, 0}, 0},
                          {"Rust's Mutex over a small number", {2, 0, 77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0},
                          {"Rust's Mutex over a Vec and a counter", {2, 0, 8, 0, 0x1000, 0x7f00, 8, 0, 3, 0, 0, 0, 0}, 0},
                          {"Rust's RwLock, with waiters", {0x3fffffff | 0x40000000, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0},
                          {"Rust's Condvar", {5, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0},
                          {"musl's rwlock", {0x7fffffff, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0},
                          {"glibc's semaphore", {0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0},
                          {"glibc's barrier", {3, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 1},
                          {"glibc's lock of a stream", {2, 1, 0x1000, 0x7f00, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0},
                          {"a waiter of C++20's atomics", {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0},
                          {"a tid that somebody joins", {kOwner, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0},
                          {"freed memory", {0x1000, 0x7f00, 0x1010, 0x7f00, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0},
                          {"ones", std::vector<uint32_t>(16, 1), 3},
                          {"twos", std::vector<uint32_t>(16, 2), 4}}) {
    FutexWord word = DecodeWords(words, futex);
    EXPECT_FALSE(word.mutex.has_value()) << what;
    EXPECT_FALSE(word.rwlock.has_value()) << what;
  }
}

TEST(LockLayout, RandomMemoryIsNoLock) {
  std::mt19937_64 random(1);
  // As memory is: mostly zeros and small numbers, some pointers.
  const auto word = [&]() -> uint32_t {
    switch (random() % 6) {
      case 0:
        return static_cast<uint32_t>(random());
      case 1:
        return static_cast<uint32_t>(random() % 4);
      case 2:
        return static_cast<uint32_t>(random() % 5000);
      default:
        return 0;
    }
  };
  int believed = 0;
  constexpr int kTries = 2'000'000;
  for (int i = 0; i < kTries; i++) {
    std::array<uint32_t, 16> words;
    for (uint32_t& w : words) w = word();
    std::array<uint8_t, sizeof(words)> memory;
    memcpy(memory.data(), words.data(), sizeof(words));
    FutexWord decoded = DecodeFutex(kAvma + 12, memory, 12, RwlockLayout::kCurrent);
    FutexWord aligned = DecodeFutex(kAvma + 16, memory, 16, RwlockLayout::kCurrent);
    believed +=
        decoded.mutex.has_value() + decoded.rwlock.has_value() + aligned.mutex.has_value() + aligned.rwlock.has_value();
  }
  EXPECT_LT(believed, kTries / 5000);
}

}  // namespace
}  // namespace stackd
