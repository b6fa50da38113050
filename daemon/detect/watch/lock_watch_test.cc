#include "daemon/detect/watch/lock_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/base/clock.h"
#include "daemon/testing/fake_probe.h"

namespace stackd {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kSecond = kNsPerSecond;

// A cycle of two, as a look at `now_ns` sees it that samples too.
struct Cycle {
  ThreadWatch threads;
  uint64_t runs = 1;

  LockView LookAt(int64_t now_ns) {
    const std::vector<ThreadSchedStat> sched_stats = {{.tid = 11, .run_count = runs}, {.tid = 12, .run_count = 1}};
    threads.Update(sched_stats, now_ns, false, 0);
    threads.Learn(std::vector<ThreadWait>{{11, 1, 1, FutexCall(0xa0)}, {12, 1, 1, FutexCall(0xb0)}}, now_ns);
    const std::vector<FutexWord> futexes = {{.avma = 0xa0, .value = 2, .mutex = PthreadMutex{.owner_tid = 12}},
                                            {.avma = 0xb0, .value = 2, .mutex = PthreadMutex{.owner_tid = 11}}};
    return ViewLocks(threads, futexes);
  }
};

TEST(DeadlockWatch, IsCertainWithTheSecondLookASecondLater) {
  Cycle cycle;
  DeadlockWatch watch;
  EXPECT_THAT(watch.Look(cycle.LookAt(kSecond), cycle.threads, kSecond), IsEmpty());
  EXPECT_TRUE(watch.HasCandidates());
  EXPECT_THAT(watch.Look(cycle.LookAt(kSecond * 3 / 2), cycle.threads, kSecond * 3 / 2), IsEmpty());
  EXPECT_THAT(watch.Look(cycle.LookAt(2 * kSecond), cycle.threads, 2 * kSecond), SizeIs(1));
  EXPECT_FALSE(watch.HasCandidates());
}

TEST(DeadlockWatch, BeginsAnewWithAThreadThatRanThoughTheCycleLooksTheSame) {
  Cycle cycle;
  DeadlockWatch watch;
  for (int64_t second = 1; second < 60; second += 5) {
    ++cycle.runs;
    EXPECT_THAT(watch.Look(cycle.LookAt(second * kSecond), cycle.threads, second * kSecond), IsEmpty());
  }
}

TEST(ViewLocks, TellsWhoHasALock) {
  ThreadWatch threads;
  std::vector<ThreadSchedStat> sched_stats;
  std::vector<ThreadWait> waits;
  std::vector<FutexWord> futexes;
  const auto add = [&](int32_t tid, uint64_t operation, FutexWord futex) {
    futex.avma = 0x1000u + 0x10u * static_cast<uint64_t>(tid);
    sched_stats.push_back({.tid = tid});
    waits.push_back({tid, 1, 1, FutexCall(futex.avma, operation)});
    futexes.push_back(futex);
  };
  add(1, FUTEX_WAIT_PRIVATE, {.mutex = PthreadMutex{.owner_tid = 2}});
  add(2, FUTEX_LOCK_PI_PRIVATE, {.value = FUTEX_WAITERS | 3});
  add(3, FUTEX_WAIT_BITSET_PRIVATE, {.rwlock = GlibcRwlock{.avma = 0x500, .writer_tid = 4}});
  add(4, FUTEX_WAIT_BITSET_PRIVATE, {.rwlock = GlibcRwlock{.avma = 0x600, .reader_count = 2}});
  add(5, FUTEX_WAIT_PRIVATE, {.mutex = PthreadMutex{.owner_tid = 77}});
  add(6, FUTEX_WAIT_PRIVATE, {.mutex = PthreadMutex{.owner_tid = 0}});  // just let go
  add(7, FUTEX_WAIT_PRIVATE, {.value = 1});                             // some word
  add(9, FUTEX_WAIT_BITSET, {.value = 1});                              // pthread_join of 1: where a tid lies in glibc
  add(10, FUTEX_WAIT_PRIVATE, {.value = 2, .stdio_owner_tid = 3});
  threads.Update(sched_stats, 1, false, 0);
  threads.Learn(waits, 1);
  const LockView view = ViewLocks(threads, futexes);
  const auto owner_of = [&](int32_t tid) {
    const auto lock = std::ranges::find(view.locks, tid, &LockWait::waiter_tid);
    return lock == view.locks.end() ? -1 : lock->owner_tid;
  };
  EXPECT_EQ(owner_of(1), 2);
  EXPECT_EQ(owner_of(2), 3);
  EXPECT_EQ(owner_of(3), 4);
  EXPECT_EQ(owner_of(4), 0);
  EXPECT_EQ(owner_of(5), 77);
  EXPECT_TRUE(std::ranges::find(view.locks, 5, &LockWait::waiter_tid)->owner_is_gone);
  EXPECT_EQ(owner_of(6), -1);
  EXPECT_EQ(owner_of(7), -1);
  EXPECT_EQ(owner_of(9), -1);
  EXPECT_EQ(owner_of(10), 3);
  EXPECT_THAT(view.edges, SizeIs(5));
  EXPECT_TRUE(std::ranges::find(view.edges, 9, &WaitEdge::waiter_tid) != view.edges.end());
}

// A waiter, then a thread that has the number of the owner, which has ended.
TEST(ViewLocks, AThreadThatBeganAfterTheWaitDoesNotHaveTheLock) {
  const std::vector<FutexWord> futexes = {{.avma = 0xa0, .value = 2, .mutex = PthreadMutex{.owner_tid = 12}}};
  const auto owner_is_gone = [&](int64_t owner_came_ns) {
    ThreadWatch threads;
    for (int64_t now_ns : {kSecond, 2 * kSecond}) {
      std::vector<ThreadSchedStat> sched_stats = {{.tid = 11, .run_count = 1}};
      if (owner_came_ns <= now_ns) sched_stats.push_back({.tid = 12, .run_count = 1});
      threads.Update(sched_stats, now_ns, false, 0);
      threads.Learn(std::vector<ThreadWait>{{11, 1, 1, FutexCall(0xa0)}}, now_ns);
    }
    return ViewLocks(threads, futexes).locks.at(0).owner_is_gone;
  };
  EXPECT_FALSE(owner_is_gone(kSecond));
  EXPECT_TRUE(owner_is_gone(2 * kSecond));
}

}  // namespace
}  // namespace stackd
