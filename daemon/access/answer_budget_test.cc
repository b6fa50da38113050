#include "daemon/access/answer_budget.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <latch>
#include <thread>

namespace stackd {
namespace {

constexpr size_t kMiB = 1 << 20;

TEST(AnswerBudget, LetsOneCallerHaveSomeTurnsAndOthersTheRest) {
  AnswerBudget budget;
  for (int i = 0; i < AnswerBudget::kTurnsOfOne; ++i) budget.TakeTurn("one");
  std::latch asks(1);
  std::future<void> third = std::async(std::launch::async, [&] {
    asks.count_down();
    budget.TakeTurn("one");
  });
  budget.TakeTurn("other");
  asks.wait();
  EXPECT_EQ(third.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  budget.GiveTurn("one");
  EXPECT_EQ(third.wait_for(std::chrono::seconds(30)), std::future_status::ready);
}

TEST(AnswerBudget, WaitsForRoomOfTheSameCaller) {
  AnswerBudget budget;
  ASSERT_TRUE(budget.Begin("one", 30 * kMiB));
  std::thread reader([&] { budget.End("one", 30 * kMiB); });
  EXPECT_TRUE(budget.Begin("one", 30 * kMiB)) << "the first is read meanwhile";
  reader.join();
}

TEST(AnswerBudget, RefusesACallerWhoReadsNothingAndServesOthers) {
  AnswerBudget budget;
  ASSERT_TRUE(budget.Begin("one", 40 * kMiB));
  EXPECT_TRUE(budget.Begin("other", 40 * kMiB));
  EXPECT_FALSE(budget.Begin("one", 10 * kMiB)) << "after some seconds";
}

TEST(AnswerBudget, AlwaysHasRoomForTheOnlyAnswerOfACaller) {
  AnswerBudget budget;
  ASSERT_TRUE(budget.Begin("one", 200 * kMiB));
  EXPECT_TRUE(budget.Begin("other", 200 * kMiB));
}

}  // namespace
}  // namespace stackd
