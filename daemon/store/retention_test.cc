// Which dumps go when, in a store with a database.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "daemon/base/clock.h"
#include "daemon/store/testing/store_fixture.h"

namespace stackd {
namespace {

using RetentionTest = StoreTest;

TEST_F(RetentionTest, EvictsTheOldestAboveTheCount) {
  auto store = Open({.max_dumps = 3});
  for (int i = 0; i < 10; ++i) Put(store.get(), MakeDump(i));
  EXPECT_EQ(NamesOf(*store->List({})), (std::vector{MakeDump(9).name(), MakeDump(8).name(), MakeDump(7).name()}));
  EXPECT_EQ(store->evicted_count(), 7);
  EXPECT_EQ(store->evictions().count, 7);
  EXPECT_EQ(store->dump_count(), 3);
}

TEST_F(RetentionTest, EvictsTheOldestAboveTheBytes) {
  auto store = Open({.max_bytes = 1'000'000});
  for (int i = 0; i < 10; ++i) {
    Put(store.get(), MakeLargeDump(i, 300'000));
    EXPECT_LE(store->bytes(), 1'000'000);
  }
  EXPECT_GE(store->dump_count(), 3);
  EXPECT_TRUE(store->Get(MakeDump(9).name()));
}

TEST_F(RetentionTest, KeepsTheNewestDumpHoweverLarge) {
  auto store = Open({.max_bytes = 1});
  Put(store.get(), MakeDump(1));
  Put(store.get(), MakeDump(2));
  EXPECT_EQ(NamesOf(*store->List({})), std::vector{MakeDump(2).name()});
}

TEST_F(RetentionTest, EvictsWhatIsTooOld) {
  auto store = Open({.max_age_seconds = 3600});
  v1::Dump old = MakeDump(1);
  old.mutable_create_time()->set_seconds(WallNs() / kNsPerSecond - 3700);
  Put(store.get(), old);
  Put(store.get(), MakeDump(2));
  EXPECT_EQ(NamesOf(*store->List({})), std::vector{MakeDump(2).name()});
}

TEST_F(RetentionTest, ShrinksInSmallStepsWhenItsLimitsBecomeSmaller) {
  {
    auto store = Open();
    for (int i = 0; i < 200; ++i) Put(store.get(), MakeDump(i));
  }
  auto store = Open({.max_dumps = 10});
  Put(store.get(), MakeDump(1000));
  EXPECT_GT(store->dump_count(), 10) << "one write must not do it all";
  for (int i = 1001; i < 1005; ++i) Put(store.get(), MakeDump(i));
  EXPECT_EQ(store->dump_count(), 10);
}

TEST_F(RetentionTest, GivesFreedSpaceBackToTheDisk) {
  struct stat status;
  auto store = Open();
  for (int i = 0; i < 40; ++i) Put(store.get(), MakeLargeDump(i, 1'500'000));
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(store->Delete(MakeDump(i).name()));
  for (int i = 100; i < 150; ++i) Put(store.get(), MakeDump(i));
  store.reset();
  ASSERT_EQ(stat(file_.c_str(), &status), 0);
  EXPECT_LT(status.st_size, 30'000'000);
}

TEST_F(RetentionTest, KeepsCrashesLongerThanDumpsThatCanBeHadAgain) {
  auto store = Open({.max_dumps = 12});
  for (int i = 0; i < 6; ++i) Store(store.get(), MakeCrash(i, i));
  for (int i = 100; i < 120; ++i) ASSERT_TRUE(store->Put(MakeRequest(i)));
  EXPECT_EQ(store->dump_count(), 12);
  EXPECT_EQ(store->List({.trigger = v1::Dump::CRASH})->dumps.size(), 6u);
  EXPECT_TRUE(store->Get(DumpName(119)));
}

TEST_F(RetentionTest, LeavesAShareToDumpsOnRequest) {
  auto store = Open({.max_dumps = 12});
  for (int i = 100; i < 103; ++i) ASSERT_TRUE(store->Put(MakeRequest(i)));
  for (int i = 0; i < 50; ++i) Store(store.get(), MakeCrash(i, i));
  EXPECT_EQ(store->dump_count(), 12);
  EXPECT_EQ(store->List({.trigger = v1::Dump::REQUEST})->dumps.size(), 3u);
  EXPECT_TRUE(store->Get(DumpName(49)));
  EXPECT_EQ(store->Get(DumpName(0)).error().reason, "DUMP_NOT_FOUND");
}

TEST_F(RetentionTest, TreatsTheAgeOfCrashesAsThatOfOtherDumps) {
  auto store = Open({.max_age_seconds = 3600});
  v1::Dump old = MakeCrash(1);
  old.mutable_create_time()->set_seconds(WallNs() / kNsPerSecond - 3700);
  Store(store.get(), old);
  Store(store.get(), MakeCrash(2));
  EXPECT_EQ(DumpsOf(*store->GetGroup("")), Names({2}));
  EXPECT_EQ(store->GetGroup("")->crash_count(), 2);
}

TEST_F(RetentionTest, ShrinksAGroupToASmallerNumberOfDumps) {
  {
    auto store = Open({.crashes_per_group = 10});
    for (int i = 0; i < 20; ++i) Store(store.get(), MakeCrash(i));
  }
  auto store = Open({.crashes_per_group = 1});
  Store(store.get(), MakeCrash(20));
  EXPECT_EQ(DumpsOf(*store->GetGroup("")), Names({0, 20}));
}

// --- Clocks that jump ---

constexpr int64_t kHour = 3600, kDay = 24 * kHour, kMonth = 30 * kDay;
int64_t g_wall_s = 0, g_boot_s = 0;

void Pass(int64_t seconds) {
  g_wall_s += seconds;
  g_boot_s += seconds;
}

class ClockJumps : public StoreTest {
 protected:
  ClockJumps() {
    g_wall_s = 1'800'000'000;
    g_boot_s = 1000;
  }

  std::unique_ptr<DumpStore> Start() {
    return Open(
        {.max_age_seconds = kMonth,
         .clocks = {.wall_ns = [] { return g_wall_s * kNsPerSecond; }, .boot_ns = [] { return g_boot_s * kNsPerSecond; }}});
  }
  static void PutNow(DumpStore* store, int number) {
    v1::Dump dump = MakeDump(number);
    dump.mutable_create_time()->set_seconds(g_wall_s);
    Put(store, dump);
  }
};

TEST_F(ClockJumps, WhatGrowsOldIsEvicted) {
  auto store = Start();
  PutNow(store.get(), 1);
  Pass(kMonth + kDay);
  PutNow(store.get(), 2);
  EXPECT_EQ(store->evictions().age, 1);
}

TEST_F(ClockJumps, AJumpWhileItRunsEvictsNothing) {
  auto store = Start();
  PutNow(store.get(), 1);
  g_wall_s += 10 * 365 * kDay;
  PutNow(store.get(), 2);
  Pass(kHour);
  PutNow(store.get(), 3);
  g_wall_s -= 10 * 365 * kDay;
  PutNow(store.get(), 4);
  Pass(2 * kDay);
  PutNow(store.get(), 5);
  EXPECT_EQ(store->evictions().age, 0);
  EXPECT_EQ(store->dump_count(), 5);
}

TEST_F(ClockJumps, AWrongClockAtTheStartEvictsNothing) {
  PutNow(Start().get(), 1);
  g_wall_s += 60 * kDay;
  g_boot_s = 10;
  {
    auto store = Start();
    PutNow(store.get(), 2);
    Pass(kHour);
    PutNow(store.get(), 3);
    EXPECT_EQ(store->evictions().age, 0);
  }
  // Started again, it remembers.
  Pass(60);
  auto store = Start();
  PutNow(store.get(), 4);
  EXPECT_EQ(store->evictions().age, 0);
  EXPECT_EQ(store->dump_count(), 4);
}

TEST_F(ClockJumps, AClockThatGoesOnEvenlyForADayIsBelieved) {
  auto store = Start();
  PutNow(store.get(), 1);
  g_wall_s += 60 * kDay;
  PutNow(store.get(), 2);
  Pass(kDay - kHour);
  PutNow(store.get(), 3);
  EXPECT_EQ(store->evictions().age, 0);
  Pass(2 * kHour);
  PutNow(store.get(), 4);
  EXPECT_EQ(store->evictions().age, 1);
}

TEST_F(ClockJumps, AnEarlierVersionsFileTellsByItsNewestDumpWhenItWasWritten) {
  PutNow(Start().get(), 1);
  Execute(file_, "DROP TABLE retention_clock; ALTER TABLE dumps DROP COLUMN attempts; PRAGMA user_version=2");
  g_wall_s += 60 * kDay;
  auto store = Start();
  ASSERT_NE(store, nullptr);
  PutNow(store.get(), 2);
  EXPECT_EQ(store->evictions().age, 0);
}

}  // namespace
}  // namespace stackd
