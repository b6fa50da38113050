#include "daemon/base/loop_watch.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>

namespace stackd {
namespace {

int64_t g_now_ns = 0;

class LoopWatchTest : public testing::Test {
 protected:
  void SetUp() override { g_now_ns = 1000 * kNsPerSecond; }

  LoopWatch watch_{[] { return g_now_ns; }};
};

TEST_F(LoopWatchTest, ALoopThatWaitsForWorkDoesNotAge) {
  {
    const LoopWatch::Turn turn(&watch_, Loop::kDetector);
  }
  g_now_ns += 3600 * kNsPerSecond;
  EXPECT_EQ(watch_.AgeNs(Loop::kDetector), 0);
  EXPECT_EQ(watch_.Stuck(false), "");
}

TEST_F(LoopWatchTest, ALoopAtWorkAgesUntilItGivesASignOfLife) {
  LoopWatch::Turn turn(&watch_, Loop::kDetector);
  g_now_ns += 59 * kNsPerSecond;
  EXPECT_EQ(watch_.AgeNs(Loop::kDetector), 59 * kNsPerSecond);
  EXPECT_EQ(watch_.AgeNs(Loop::kStore), 0);
  EXPECT_EQ(watch_.Stuck(true), "");
  turn.Beat();
  g_now_ns += 59 * kNsPerSecond;
  EXPECT_EQ(watch_.Stuck(true), "");
  g_now_ns += kNsPerSecond;
  EXPECT_EQ(watch_.Stuck(true), "the loop \"detector\" of stackd has been stuck for 60 s");
}

TEST_F(LoopWatchTest, TheOldestTurnOfALoopCounts) {
  std::optional<LoopWatch::Turn> first, second;
  first.emplace(&watch_, Loop::kStore);
  g_now_ns += 10 * kNsPerSecond;
  second.emplace(&watch_, Loop::kStore);
  g_now_ns += 10 * kNsPerSecond;
  EXPECT_EQ(watch_.AgeNs(Loop::kStore), 20 * kNsPerSecond);
  first.reset();
  EXPECT_EQ(watch_.AgeNs(Loop::kStore), 10 * kNsPerSecond);
  second.reset();
  EXPECT_EQ(watch_.AgeNs(Loop::kStore), 0);
}

TEST_F(LoopWatchTest, WhatOneProcessCanHoldUpIsToldAndEndsNothing) {
  const LoopWatch::Turn modules(&watch_, Loop::kModules), store(&watch_, Loop::kStore);
  g_now_ns += 100 * kNsPerSecond;
  EXPECT_EQ(watch_.Stuck(true), "the loop \"store\" of stackd has been stuck for 100 s");
  EXPECT_EQ(
      watch_.Stuck(false),
      "the loop \"modules\" of stackd has been stuck for 100 s; the loop \"store\" of stackd has been stuck for 100 s");
}

TEST_F(LoopWatchTest, EachLoopHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kLoops; ++i) names.insert(NameOf(static_cast<Loop>(i)));
  EXPECT_EQ(names.size(), kLoops);
  EXPECT_FALSE(names.contains(""));
}

}  // namespace
}  // namespace stackd
