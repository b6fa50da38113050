#include "daemon/base/byte_budget.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

namespace stackd {
namespace {

TEST(ByteBudget, IsGivenBackByWhoeverHeldIt) {
  ByteBudget budget(100);
  {
    HeldBytes one(&budget), other(&budget);
    EXPECT_TRUE(one.Take(60));
    EXPECT_FALSE(other.Take(41));
    EXPECT_TRUE(other.Take(40));
    EXPECT_EQ(budget.held_bytes(), 100);
    HeldBytes moved = std::move(one);
    EXPECT_EQ(budget.held_bytes(), 100) << "once";
    other = HeldBytes();
    EXPECT_EQ(budget.held_bytes(), 60);
  }
  EXPECT_EQ(budget.held_bytes(), 0);
  EXPECT_EQ(budget.refusals(), 1);
}

TEST(ByteBudget, GivesWhatThereIs) {
  ByteBudget budget(100);
  HeldBytes one(&budget), other(&budget), third(&budget);
  EXPECT_EQ(one.TakeSome(60), 60);
  EXPECT_EQ(other.TakeSome(60), 40);
  EXPECT_EQ(third.TakeSome(60), 0);
  EXPECT_EQ(budget.held_bytes(), 100);
  EXPECT_EQ(budget.refusals(), 2);
}

TEST(ByteBudget, WithoutALimitAllFits) {
  HeldBytes held;
  EXPECT_TRUE(held.Take(int64_t{1} << 60));
  EXPECT_EQ(held.TakeSome(7), 7);
}

TEST(ByteBudget, ThreadsHaveNoMoreThanThereIs) {
  ByteBudget budget(1000);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 10'000; ++n) {
        HeldBytes held(&budget);
        held.Take(300);
        held.TakeSome(400);
        EXPECT_LE(budget.held_bytes() - 4 * 300, 1000) << "but for those that are about to be refused";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget.held_bytes(), 0);
}

}  // namespace
}  // namespace stackd
