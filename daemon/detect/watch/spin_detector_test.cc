#include "daemon/detect/watch/spin_detector.h"

#include "daemon/detect/watch/testing/detector_fixture.h"

namespace stackd {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using SpinDetectorTest = DetectorTest;

TEST_F(SpinDetectorTest, AThreadThatSpinsWhileOthersWaitForItsLockIsFound) {
  Start();
  FakeProcess& process = AddIdle();
  process.AddThread(12, std::nullopt);
  process.AddMutexWait(11, 0xa0, 12);
  process.functions = {"spin_until", "worker", "main"};
  int64_t before_ns = now_ns_;
  const auto burn = [&] { process.threads[12].sched_stat.run_ns += now_ns_ - std::exchange(before_ns, now_ns_); };
  Pass(60, burn);
  ASSERT_THAT(found_, IsEmpty());
  Pass(20, burn);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_EQ(found_[0]->hang.cause, HangCause::kSpin);
  EXPECT_EQ(found_[0]->hang.tid, 12);
  EXPECT_THAT(found_[0]->hang.explanation, HasSubstr("stays in spin_until"));
  EXPECT_EQ(process.functions_asked, 5);
}

TEST_F(SpinDetectorTest, AThreadThatComputesIsLeftAloneUnlessItKeepsOthersWaiting) {
  Start();
  FakeProcess& process = AddIdle();
  process.AddThread(12, std::nullopt);
  process.functions = {"multiply", "main"};
  int64_t before_ns = now_ns_;
  Pass(300, [&] { process.threads[12].sched_stat.run_ns += now_ns_ - std::exchange(before_ns, now_ns_); });
  EXPECT_THAT(found_, IsEmpty());
  EXPECT_EQ(process.functions_asked, 0);
}

TEST_F(SpinDetectorTest, AThreadThatGoesOnToOtherFunctionsDoesNotSpin) {
  Start();
  FakeProcess& process = AddIdle();
  process.AddThread(12, std::nullopt);
  process.AddMutexWait(11, 0xa0, 12);
  int64_t before_ns = now_ns_;
  Pass(300, [&] {
    process.threads[12].sched_stat.run_ns += now_ns_ - std::exchange(before_ns, now_ns_);
    process.functions = {"step" + std::to_string(now_ns_), "main"};
  });
  EXPECT_THAT(found_, IsEmpty());
  EXPECT_LE(process.functions_asked, 10);
}

}  // namespace
}  // namespace stackd
