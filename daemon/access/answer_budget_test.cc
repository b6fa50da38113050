#include "daemon/access/answer_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace stackd {
namespace {

constexpr size_t kMiB = 1 << 20;

TEST(AnswerBudget, LetsOneCallerHaveSomeTurnsAndOthersTheRest) {
  AnswerBudget budget;
  for (int i = 0; i < AnswerBudget::kTurnsOfOne; ++i) budget.TakeTurn("one");
  std::atomic<bool> has_third = false;
  std::thread third([&] {
    budget.TakeTurn("one");
    has_third = true;
    budget.GiveTurn("one");
  });
  budget.TakeTurn("other");
  EXPECT_FALSE(has_third);
  budget.GiveTurn("one");
  third.join();
  EXPECT_TRUE(has_third);
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
