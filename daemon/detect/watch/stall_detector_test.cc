#include "daemon/detect/watch/stall_detector.h"

#include "daemon/detect/watch/testing/detector_fixture.h"

namespace stackd {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using StallDetectorTest = DetectorTest;

TEST_F(StallDetectorTest, AStandstillWithSomebodyAtALockIsFoundAfterItsTime) {
  Start();
  FakeProcess& process = AddIdle();
  process.AddReader(12);
  process.AddMutexWait(11, 0xa0, 12);
  Pass(58);
  ASSERT_THAT(found_, IsEmpty());
  Pass(10);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_EQ(found_[0]->hang.cause, HangCause::kNoProgress);
  EXPECT_EQ(found_[0]->hang.tid, 12);
  EXPECT_THAT(found_[0]->hang.explanation, HasSubstr("thread 11 waits for the lock 0xa0, which thread 12 holds"));
  Pass(300);
  EXPECT_THAT(found_, SizeIs(1));
}

TEST_F(StallDetectorTest, AStandstillOutlastsTheDumpsOfOthers) {
  Start();
  FakeProcess& process = AddIdle();
  process.AddReader(12);
  process.AddMutexWait(11, 0xa0, 12);
  int looks = 0;
  Pass(90, [&] {
    if (++looks % 40 != 20) return;
    process.AnswerCapture();
    detector_->AfterCapture("7-1");
  });
  EXPECT_THAT(found_, SizeIs(1));
}

TEST_F(StallDetectorTest, ALockOfAThreadThatEndedIsAStandstill) {
  Start();
  AddIdle().AddMutexWait(11, 0xa0, 4711);
  Pass(70);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_THAT(found_[0]->hang.explanation, HasSubstr("which thread 4711, which has ended, held"));
  EXPECT_EQ(found_[0]->hang.tid, 11);
}

TEST_F(StallDetectorTest, ALockThatAnotherProcessHasIsNoStandstill) {
  Start();
  FakeProcess& process = AddIdle();
  process.AddMutexWait(11, 0xa0, 4711, /*kind=*/128);
  process.threads[11].call = FutexCall(0xa0, FUTEX_WAIT);
  Pass(100);
  EXPECT_THAT(found_, IsEmpty());
}

TEST_F(StallDetectorTest, AnIdlePoolWhoseLeaderHoldsALockWhileItWaitsForWorkIsWell) {
  for (const SystemCall& call : {CallOf(SYS_accept4), CallOf(SYS_epoll_wait), CallOf(SYS_poll), CallOf(SYS_mq_timedreceive),
                                 CallOf(SYS_clock_nanosleep), CallOf(SYS_pause), ReadCall(0), ReadCall(6), ReadCall(9)}) {
    probe_.processes.clear();
    Start();
    FakeProcess& process = AddIdle();
    process.fds[6] = {.fd = 6, .name = "anon_inode:inotify"};  // and of 9 nothing is known
    process.AddThread(12, call);
    process.AddMutexWait(11, 0xa0, 12);
    process.AddMutexWait(13, 0xb0, 11);
    Pass(100);
    EXPECT_THAT(found_, IsEmpty()) << call.number;
  }
}

TEST_F(StallDetectorTest, AnOwnerThatAnotherThreadIsToWakeIsWellWhereWorkMayComeIn) {
  for (bool gets_work : {true, false}) {
    probe_.processes.clear();
    found_.clear();
    Start();
    FakeProcess& process = AddIdle();
    if (!gets_work) process.threads[7].call = CallOf(SYS_pause);
    process.AddThread(12, FutexCall(0xc0));
    process.futexes[0xc0] = {.avma = 0xc0};
    process.AddMutexWait(11, 0xa0, 12);
    Pass(100);
    EXPECT_THAT(found_, SizeIs(gets_work ? 0 : 1));
  }
}

TEST_F(StallDetectorTest, AnOwnerThatWaitsInSharedMemoryIsWell) {
  Start();
  FakeProcess& process = AddIdle();
  process.threads[7].call = CallOf(SYS_pause);
  process.AddThread(12, FutexCall(0xc0, FUTEX_WAIT));
  process.futexes[0xc0] = {.avma = 0xc0, .is_shared = true};
  process.AddMutexWait(11, 0xa0, 12);
  Pass(100);
  EXPECT_THAT(found_, IsEmpty());
}

TEST_F(StallDetectorTest, AProcessInWhichOneThreadRunsNowAndThenMakesProgress) {
  Start();
  FakeProcess& process = AddIdle();
  process.AddReader(12);
  process.AddMutexWait(11, 0xa0, 12);
  int looks = 0;
  Pass(300, [&] {
    if (++looks % 50 == 0) process.threads[7].Run();
  });
  EXPECT_THAT(found_, IsEmpty());
}

TEST_F(StallDetectorTest, AThreadThatWantsToRunAndGetsNoCoreIsNoStandstill) {
  Start();
  FakeProcess& process = AddIdle();
  process.AddReader(12);
  process.AddThread(13, CallOf(SYS_read));
  process.AddMutexWait(11, 0xa0, 12);
  Pass(20);
  process.threads[13].Run();
  process.threads[13].call.reset();
  Pass(200);
  EXPECT_THAT(found_, IsEmpty());
}

}  // namespace
}  // namespace stackd
