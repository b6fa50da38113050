#include "daemon/serve/guard/work_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>

namespace stackd {
namespace {

TEST(WorkThreads, DoSoMuchAtATimeAndRefuseTheRest) {
  std::atomic<int> done = 0;
  {
    std::latch all_run(3), go_on(1);
    WorkThreads threads(3);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(threads.Do([&] {
        all_run.count_down();
        go_on.wait();
        ++done;
      }));
    }
    all_run.wait();
    EXPECT_FALSE(threads.Do([&] { ++done; }));
    go_on.count_down();
  }
  EXPECT_EQ(done, 3);
}

TEST(WorkThreads, KeepSomeFree) {
  std::latch go_on(1);
  WorkThreads threads(3);
  const auto wait = [&] { go_on.wait(); };
  EXPECT_TRUE(threads.Do(wait, 1));
  EXPECT_TRUE(threads.Do(wait, 1));
  EXPECT_FALSE(threads.Do(wait, 1));
  EXPECT_TRUE(threads.Do(wait));
  EXPECT_FALSE(threads.Do(wait));
  go_on.count_down();
}

TEST(WorkThreads, AreUsedAgain) {
  WorkThreads threads(1);
  for (int i = 0; i < 100; ++i) {
    std::latch is_done(1);
    // It may be still on its way from the work before.
    while (!threads.Do([&] { is_done.count_down(); })) std::this_thread::yield();
    is_done.wait();
  }
}

TEST(WorkThreads, FinishWhatTheyTookBeforeTheyEnd) {
  std::atomic<int> done = 0;
  {
    WorkThreads threads(8);
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(threads.Do([&] { ++done; }));
  }
  EXPECT_EQ(done, 8);
}

}  // namespace
}  // namespace stackd
