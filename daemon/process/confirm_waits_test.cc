#include "daemon/process/confirm_waits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#include <algorithm>
#include <set>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ThreadCall WaitsFor(int32_t tid, uint64_t avma) {
  return {tid, SystemCall{.number = SYS_futex, .known_arguments = 3, .arguments = {avma, FUTEX_WAIT_PRIVATE}}};
}

std::vector<int32_t> TidsInCycles(const std::vector<ThreadCall>& calls, const std::vector<FutexWord>& words) {
  std::vector<int32_t> tids;
  for (const LockEdge& edge : EdgesInCycles(EdgesOf(calls, words))) tids.push_back(edge.waiter_tid);
  std::ranges::sort(tids);
  return tids;
}

TEST(ConfirmWaits, OnlyCyclesAreLookedAtAgain) {
  const std::vector<FutexWord> words = {{.avma = 8, .value = 2, .mutex = PthreadMutex{.owner_tid = 3}},
                                        {.avma = 16, .value = 4},
                                        {.avma = 24, .value = 2, .mutex = PthreadMutex{.owner_tid = 5}},
                                        {.avma = 32, .value = 3, .rwlock = GlibcRwlock{.avma = 32, .writer_tid = 1}}};
  EXPECT_THAT(TidsInCycles({WaitsFor(1, 8), WaitsFor(3, 24), WaitsFor(4, 8)}, words), IsEmpty()) << "a chain";
  EXPECT_THAT(TidsInCycles({WaitsFor(1, 8), WaitsFor(3, 32), WaitsFor(9, 8)}, words), ElementsAre(1, 3))
      << "who waits for a circle is no part of it";
  EXPECT_THAT(TidsInCycles({WaitsFor(1, 8), WaitsFor(3, 16), WaitsFor(4, 32)}, words), ElementsAre(1, 3, 4)) << "a tid";
  EXPECT_THAT(TidsInCycles({WaitsFor(3, 8), WaitsFor(5, 24)}, words), ElementsAre(3, 5)) << "each for itself";
  EXPECT_THAT(TidsInCycles({{3, SystemCall{.number = SYS_read}}, WaitsFor(5, 99)}, words), IsEmpty());
}

TEST(ConfirmWaits, OfAWaitThatARuntimeKnowsTheFutexSaysNothing) {
  const std::vector<FutexWord> words = {{.avma = 8, .value = 2, .mutex = PthreadMutex{.owner_tid = 3}},
                                        {.avma = 24, .value = 2, .mutex = PthreadMutex{.owner_tid = 1}}};
  const std::vector<ThreadCall> calls = {WaitsFor(1, 8), WaitsFor(3, 24)};
  const auto tids = [&](const std::vector<ManagedWait>& waits) {
    std::set<int32_t> found;
    for (const LockEdge& edge : EdgesInCycles(EdgesOf(calls, words, waits))) found.insert(edge.waiter_tid);
    return found;
  };
  EXPECT_THAT(tids({}), ElementsAre(1, 3));
  EXPECT_THAT(tids({{.waiter_tid = 3, .owner_tid = 7}}), IsEmpty()) << "it waits for another thread";
  EXPECT_THAT(tids({{.waiter_tid = 3, .owner_tid = 7}, {.waiter_tid = 7, .owner_tid = 1}}), ElementsAre(1, 3, 7))
      << "through locks of both kinds";
}

std::vector<int32_t> OwnersAfter(const std::vector<ManagedWait>& now, std::vector<ManagedWait> before) {
  TakeOwners(now, &before);
  std::vector<int32_t> owners;
  for (const ManagedWait& wait : before) owners.push_back(wait.owner_tid);
  return owners;
}

TEST(ConfirmWaits, OwnersAreThoseOfTheSecondReading) {
  using enum ManagedLockKind;
  const std::vector<ManagedWait> before = {{kMonitor, 1, 9, 0x80}, {kMonitor, 2, 9, 0x80}};
  EXPECT_THAT(OwnersAfter({{kMonitor, 1, 8, 0x90}}, before), ElementsAre(8, 0)) << "one waits for another, one no more";
  EXPECT_THAT(OwnersAfter({{kGil, 1, 8, 0x80}, {kMonitor, 2, 9, 0x80}}, before), ElementsAre(0, 9)) << "of another kind";
}

TEST(ConfirmWaits, WhoIsAwakeToAskForAGilKeepsTheOwnerThatAnotherWaitsFor) {
  using enum ManagedLockKind;
  const std::vector<ManagedWait> before = {{kGil, 1, 9, 0x80}, {kGil, 2, 9, 0x80}};
  EXPECT_THAT(OwnersAfter({{kGil, 2, 9, 0x80}}, before), ElementsAre(9, 9));
  EXPECT_THAT(OwnersAfter({{kGil, 2, 8, 0x80}}, before), ElementsAre(0, 8)) << "it went to another thread";
  EXPECT_THAT(OwnersAfter({{kGil, 2, 9, 0x88}}, before), ElementsAre(0, 9)) << "of another interpreter";
  EXPECT_THAT(OwnersAfter({}, before), ElementsAre(0, 0));
}

TEST(ConfirmWaits, AThreadWaitsStillIfItHasNotRunAndSleepsInTheSameCall) {
  const LockEdge waiter = {.waiter_tid = 7, .holder_tid = 9, .futex_avma = 8};
  const std::vector<ThreadSchedStat> first = {{.tid = 7, .run_count = 3}}, later = {{.tid = 7, .run_count = 4}};
  const std::vector<ThreadWait> same = {{.tid = 7, .call = WaitsFor(7, 8).call}},
                                other = {{.tid = 7, .call = WaitsFor(7, 16).call}};
  EXPECT_EQ(DoesStillWait(waiter, SleepLook(first, same, first)), StillWaits::kYes);
  EXPECT_EQ(DoesStillWait(waiter, SleepLook(first, same, later)), StillWaits::kNotClear);
  EXPECT_EQ(DoesStillWait(waiter, SleepLook(first, other, first)), StillWaits::kNo);
  EXPECT_EQ(DoesStillWait(waiter, SleepLook(first, {}, first)), StillWaits::kNotClear) << "it runs";
  EXPECT_EQ(DoesStillWait(waiter, SleepLook({}, same, {})), StillWaits::kYes) << "where the kernel does not count";
  const LockEdge of_runtime = {.waiter_tid = 7, .holder_tid = 9};
  EXPECT_EQ(DoesStillWait(of_runtime, SleepLook(first, other, first)), StillWaits::kYes);
  EXPECT_EQ(DoesStillWait(of_runtime, SleepLook(first, other, later)), StillWaits::kNotClear);
}

// Threads 1 and 2 hand two locks of a runtime back and forth: each reading is torn, and looks like a cycle.
class TornReadings : public testing::Test {
 protected:
  CycleProbe Probe() {
    CycleProbe probe;
    probe.read_sched_stats = [this] {
      if (runs_) ++runs;
      return std::vector<ThreadSchedStat>{{.tid = 1, .run_count = runs}, {.tid = 2, .run_count = 5}};
    };
    probe.sample = [this]() -> Result<std::vector<ThreadWait>> {
      return std::vector<ThreadWait>{{.tid = 1, .call = WaitsFor(1, 8).call}, {.tid = 2, .call = WaitsFor(2, 16).call}};
    };
    probe.read_locks = [this](const std::vector<ThreadWait>&) -> std::optional<std::vector<LockEdge>> {
      if (++readings == stands_still_at) runs_ = false;
      return std::vector<LockEdge>{{.waiter_tid = 1, .holder_tid = 2}, {.waiter_tid = 2, .holder_tid = 1}};
    };
    probe.is_connected = [] { return true; };
    return probe;
  }

  int readings = 0, stands_still_at = 0;
  uint64_t runs = 0;
  bool runs_ = true;
};

TEST_F(TornReadings, AreNoCycleHoweverOftenTheyAreEqual) {
  const ConfirmedCycles confirmed = ConfirmCycles(Probe(), MonotonicNs() + 20 * kNsPerMs);
  EXPECT_TRUE(confirmed.has_looked);
  EXPECT_GT(readings, 1);
  EXPECT_THAT(confirmed.unconfirmed_tids, ElementsAre(1));
}

TEST_F(TornReadings, AreOneWhenNoThreadHasRunFromTheFirstCountToTheSecond) {
  stands_still_at = 2;
  const ConfirmedCycles confirmed = ConfirmCycles(Probe(), MonotonicNs() + kNsPerSecond);
  EXPECT_THAT(confirmed.unconfirmed_tids, IsEmpty());
  EXPECT_EQ(readings, 2);
}

}  // namespace
}  // namespace stackd
