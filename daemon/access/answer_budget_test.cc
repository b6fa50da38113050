#include "daemon/access/answer_budget.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <latch>
#include <thread>

namespace stackd {
namespace {

using Turn = AnswerBudget::Turn;
using std::chrono::milliseconds;
using std::chrono::system_clock;

constexpr size_t kMiB = 1 << 20;
constexpr auto kNoDeadline = system_clock::time_point::max();

system_clock::time_point Soon() { return system_clock::now() + milliseconds(50); }

TEST(AnswerBudget, LetsOneCallerHaveSomeTurnsAndOthersTheRest) {
  AnswerBudget budget;
  for (int i = 0; i < AnswerBudget::kTurnsOfOne; ++i) ASSERT_EQ(budget.TakeTurn("one", kNoDeadline), Turn::kTaken);
  std::latch asks(1);
  std::future<Turn> third = std::async(std::launch::async, [&] {
    asks.count_down();
    return budget.TakeTurn("one", kNoDeadline);
  });
  EXPECT_EQ(budget.TakeTurn("other", kNoDeadline), Turn::kTaken);
  asks.wait();
  EXPECT_EQ(third.wait_for(milliseconds(200)), std::future_status::timeout);
  budget.GiveTurn("one");
  EXPECT_EQ(third.get(), Turn::kTaken);
}

TEST(AnswerBudget, LeavesATurnToWhoHasNoneWhenTwoCallersTakeAllTheyGet) {
  AnswerBudget budget;
  for (const char* caller : {"one", "two", "one", "two"}) budget.TakeTurn(caller, Soon());
  EXPECT_EQ(budget.TakeTurn("one", Soon()), Turn::kBusy);
  EXPECT_EQ(budget.TakeTurn("two", Soon()), Turn::kBusy);
  EXPECT_EQ(budget.TakeTurn("three", Soon()), Turn::kTaken);
  EXPECT_EQ(budget.TakeTurn("four", Soon()), Turn::kBusy);
}

TEST(AnswerBudget, WaitsForRoomOfTheSameCaller) {
  AnswerBudget budget;
  budget.Begin("one", 50 * kMiB);
  std::thread reader([&] { budget.End("one", 50 * kMiB); });
  EXPECT_EQ(budget.TakeTurn("one", kNoDeadline), Turn::kTaken) << "the first is read meanwhile";
  reader.join();
}

TEST(AnswerBudget, RefusesACallerWhoReadsNothingWithoutATurnAndServesOthers) {
  AnswerBudget budget;
  budget.Begin("one", 50 * kMiB);
  std::thread waiting([&] { EXPECT_EQ(budget.TakeTurn("one", kNoDeadline), Turn::kUnread) << "after some seconds"; });
  for (int i = 0; i < AnswerBudget::kTurns; ++i) {
    EXPECT_EQ(budget.TakeTurn("other" + std::to_string(i), Soon()), Turn::kTaken);
  }
  waiting.join();
}

TEST(AnswerBudget, AlwaysHasRoomForTheOnlyAnswerOfACaller) {
  AnswerBudget budget;
  budget.Begin("one", 200 * kMiB);
  EXPECT_EQ(budget.TakeTurn("other", Soon()), Turn::kTaken);
}

}  // namespace
}  // namespace stackd
