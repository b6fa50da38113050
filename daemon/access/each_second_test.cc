#include "daemon/access/each_second.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>

namespace stackd {
namespace {

TEST(EachSecond, WorksAgainAndAgain) {
  std::latch three(3);
  std::atomic<int> times = 0;
  EachSecond each_second([&] {
    if (++times <= 3) three.count_down();
  });
  EXPECT_EQ(times, 0);
  three.wait();
}

TEST(EachSecond, EndsAfterTheWorkUnderWay) {
  std::latch begun(1), go_on(1);
  std::atomic<bool> is_done = false;
  {
    EachSecond each_second([&] {
      if (is_done) return;
      begun.count_down();
      go_on.wait();
      is_done = true;
    });
    begun.wait();
    go_on.count_down();
  }
  EXPECT_TRUE(is_done);
}

}  // namespace
}  // namespace stackd
