#include "daemon/detect/watch/shutdown_detector.h"

#include "daemon/detect/watch/testing/detector_fixture.h"

namespace stackd {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using ShutdownDetectorTest = DetectorTest;

Rules ShutdownRule(int64_t seconds) {
  Rule rule;
  rule.name = "not_gone";
  rule.trigger = RuleTrigger::kShutdownTimeout;
  rule.after_ns = seconds * kNsPerSecond;
  return {std::make_shared<const Rule>(rule)};
}

TEST_F(ShutdownDetectorTest, AProcessThatHasTakenSigtermAndStaysIsReportedOnce) {
  Start(ShutdownRule(20));
  FakeProcess& process = AddIdle();
  process.sigterm.taken_count = 7;  // of its parent
  Pass(60);
  process.sigterm.taken_count = 8;
  const int64_t told_ns = now_ns_;
  Pass(60);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_GE(found_at_ns_[0] - told_ns, 20 * kNsPerSecond);
  EXPECT_LE(found_at_ns_[0] - told_ns, 24 * kNsPerSecond);
  EXPECT_EQ(found_[0]->hang.cause, HangCause::kNotGone);
  EXPECT_THAT(found_[0]->hang.explanation, HasSubstr("the process is still there; it has taken the signal"));
  EXPECT_FALSE(found_[0]->over);
  process.sigterm.taken_count = 9;
  Pass(30);
  EXPECT_THAT(found_, SizeIs(2));
  probe_.processes.clear();
  Pass(1);
  EXPECT_TRUE(found_[1]->over);
}

TEST_F(ShutdownDetectorTest, ASigtermThatNobodyTakesIsReported) {
  Start(ShutdownRule(1));
  FakeProcess& process = AddIdle();
  process.sigterm = {.is_pending = true};  // its memory cannot be read
  Pass(8);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_THAT(found_[0]->hang.explanation, HasSubstr("it has not even taken the signal"));
}

TEST_F(ShutdownDetectorTest, ASigtermTakenFromTheQueueCountsAsTaken) {
  Start(ShutdownRule(20));
  FakeProcess& process = AddIdle();
  process.sigterm.is_pending = true;
  Pass(5);
  process.sigterm.is_pending = false;
  Pass(20);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_THAT(found_[0]->hang.explanation, HasSubstr("it has taken the signal"));
}

TEST_F(ShutdownDetectorTest, SigtermIsNotLookedForWithoutARule) {
  Start();
  AddIdle().sigterm.is_pending = true;
  Pass(120);
  EXPECT_THAT(found_, IsEmpty());
}

}  // namespace
}  // namespace stackd
