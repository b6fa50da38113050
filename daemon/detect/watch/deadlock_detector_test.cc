#include "daemon/detect/watch/deadlock_detector.h"

#include "daemon/detect/watch/testing/detector_fixture.h"

namespace stackd {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

using DeadlockDetectorTest = DetectorTest;

TEST_F(DeadlockDetectorTest, ADeadlockIsFoundOnceWithinTenSeconds) {
  for (bool is_else_idle : {true, false}) {
    for (int64_t tenths = 0; tenths < 60; tenths += 3) {
      SCOPED_TRACE(testing::Message() << is_else_idle << " " << tenths);
      probe_.processes.clear();
      found_.clear();
      Start();
      FakeProcess& process = AddIdle();
      process.AddThread(11, CallOf(SYS_epoll_wait));
      process.AddThread(12, CallOf(SYS_epoll_wait));
      const auto others = [&] {
        if (!is_else_idle) process.threads[7].Run();
      };
      PassNs(60 * kNsPerSecond + tenths * 100 * kNsPerMs, others);
      ASSERT_THAT(found_, IsEmpty());
      process.MoveToMutex(11, 0xa0, 12);
      process.MoveToMutex(12, 0xb0, 11);
      const int64_t begin_ns = now_ns_;
      Pass(120, others);
      ASSERT_THAT(found_, SizeIs(1));
      EXPECT_LE(found_at_ns_.back() - begin_ns, 10 * kNsPerSecond);
      EXPECT_EQ(found_[0]->hang.cause, HangCause::kDeadlock);
      EXPECT_EQ(found_[0]->hang.tid, 11);
      EXPECT_EQ(found_[0]->hang.rule, "deadlock");
      EXPECT_EQ(found_[0]->hang.explanation, "2 threads wait for each other in a circle: thread 11, thread 12");
      EXPECT_FALSE(found_[0]->over);
    }
  }
}

TEST_F(DeadlockDetectorTest, ACycleOfLocksThatRuntimesKnowIsADeadlockThatACaptureProves) {
  Start();
  FakeProcess& process = AddIdle();
  for (int32_t tid : {11, 12}) process.AddThread(tid, FutexCall(0xa0 + 16 * static_cast<uint64_t>(tid)));
  process.lock_waits = {{ManagedLockKind::kMonitor, 11, 12, 0x7000, "Account"},
                        {ManagedLockKind::kMonitor, 12, 11, 0x8000, "Order"}};
  process.cycle = CycleInStacks{"2 threads wait for each other in a circle", {11, 12}};
  const int64_t begin_ns = now_ns_;
  // A monitor's waiter wakes to look whether it is free, and waits on.
  Pass(30, [&] { process.threads[11].Run(); });
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_LE(found_at_ns_[0] - begin_ns, 10 * kNsPerSecond);
  EXPECT_EQ(found_[0]->hang.cause, HangCause::kDeadlock);
  EXPECT_EQ(found_[0]->hang.explanation, "2 threads wait for each other in a circle");
  EXPECT_FALSE(found_[0]->is_inferred);
  EXPECT_FALSE(found_[0]->over);
  EXPECT_EQ(process.cycles_asked, 1);
  process.lock_waits.pop_back();
  process.threads[12].Run();
  Pass(30);
  EXPECT_TRUE(found_[0]->over);
}

TEST_F(DeadlockDetectorTest, ACycleOfSuchLocksThatNoCaptureProvesIsNone) {
  Start();
  FakeProcess& process = AddIdle();
  process.AddMutexWait(11, 0xa0, 12);
  process.AddThread(12, FutexCall(0xb0));
  process.lock_waits = {{ManagedLockKind::kMonitor, 12, 11, 0x7000, "Account"}};
  Pass(60);
  EXPECT_THAT(found_, IsEmpty());
  EXPECT_EQ(process.cycles_asked, 3) << "through a mutex of the C library, too, and no more often";
}

TEST_F(DeadlockDetectorTest, AThreadThatWaitsForItselfIsADeadlock) {
  Start();
  AddIdle().AddMutexWait(11, 0xa0, 11);
  Pass(10);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_EQ(found_[0]->hang.explanation, "thread 11 waits for a lock that it holds itself");
}

TEST_F(DeadlockDetectorTest, ACycleWhoseThreadsRunBetweenTwoLooksIsNone) {
  Start();
  FakeProcess& process = AddDeadlock();
  Pass(60, [&] { process.threads[12].Run(); });
  EXPECT_THAT(found_, IsEmpty());
}

TEST_F(DeadlockDetectorTest, AWaitWithATimeLimitIsNoDeadlock) {
  Start();
  FakeProcess& process = AddDeadlock();
  process.threads[12].call = FutexCall(0xb0, FUTEX_WAIT_BITSET_PRIVATE, 0x7ffe0000);
  Pass(30);
  EXPECT_THAT(found_, IsEmpty());
}

// The number of an owner that ended with its lock is used again, by a thread that asks for the lock as well.
TEST_F(DeadlockDetectorTest, AThreadWithTheNumberOfAnOwnerThatEndedDoesNotWaitForItself) {
  Start();
  FakeProcess& process = AddIdle();
  process.AddMutexWait(11, 0xa0, 12);
  Pass(20);
  process.AddMutexWait(12, 0xa0, 12);
  Pass(30);
  EXPECT_THAT(found_, IsEmpty());
}

TEST_F(DeadlockDetectorTest, ADumpDoesNotMakeADeadlockLookNew) {
  Start();
  FakeProcess& process = AddDeadlock();
  Pass(10);
  ASSERT_THAT(found_, SizeIs(1));
  process.AnswerCapture();
  detector_->AfterCapture("7-1");
  Pass(100);
  EXPECT_THAT(found_, SizeIs(1));
  EXPECT_FALSE(found_[0]->over);
  EXPECT_LT(*detector_->BeforeCapture("7-1").at(11).unmoved_since_ns, now_ns_ - 100 * kNsPerSecond);
}

TEST_F(DeadlockDetectorTest, ALookBetweenTheTwoHalvesOfADumpMakesNoDifference) {
  Start();
  FakeProcess& process = AddDeadlock();
  Pass(10);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_GT(now_ns_ - *detector_->BeforeCapture("7-1").at(11).unmoved_since_ns, 5 * kNsPerSecond);
  // The look comes before the capture, and what tells of its end after the next.
  const int64_t looks_before = detector_->Counters().at("hang_looks");
  while (detector_->Counters().at("hang_looks") == looks_before) now_ns_ = detector_->Look(now_ns_);
  process.AnswerCapture();
  while (detector_->Counters().at("hang_looks") == looks_before + 1) now_ns_ = detector_->Look(now_ns_);
  detector_->AfterCapture("7-1");
  Pass(60);
  EXPECT_THAT(found_, SizeIs(1));
  EXPECT_FALSE(found_[0]->over);
}

TEST_F(DeadlockDetectorTest, ManyDumpsBeforeTheNextSampleDoNotEndADeadlock) {
  Start();
  FakeProcess& process = AddDeadlock();
  Pass(10);
  ASSERT_THAT(found_, SizeIs(1));
  process.sample_error = Status{Code::kDeadlineExceeded, "busy"};
  Pass(20, [&] {
    detector_->BeforeCapture("7-1");
    process.AnswerCapture();
    detector_->AfterCapture("7-1");
  });
  process.sample_error.reset();
  Pass(100);
  EXPECT_THAT(found_, SizeIs(1));
  EXPECT_FALSE(found_[0]->over);
}

TEST_F(DeadlockDetectorTest, ThreadsThatRunMoreThanDumpsMakeThemHaveMoved) {
  Start();
  FakeProcess& process = AddDeadlock();
  Pass(10);
  ASSERT_THAT(found_, SizeIs(1));
  detector_->BeforeCapture("7-1");
  for (int i = 0; i < 20; ++i) process.AnswerCapture();
  detector_->AfterCapture("7-1");
  Pass(60);
  EXPECT_TRUE(found_[0]->over);
}

TEST_F(DeadlockDetectorTest, ADeadlockIsOverWhenOneOfItsThreadsRuns) {
  Start();
  FakeProcess& process = AddDeadlock();
  Pass(10);
  ASSERT_THAT(found_, SizeIs(1));
  process.threads[11].Run();
  process.threads[11].call = CallOf(SYS_epoll_wait);
  Pass(10);
  EXPECT_TRUE(found_[0]->over);
}

// Thread 11 waits on a word that looks like a once flag while its initializer runs.
FakeProcess& AddOnceWait(FakeProcess* process) {
  process->AddThread(11, FutexCall(0xa0));
  process->futexes[0xa0] = {.avma = 0xa0, .value = 1};
  process->functions = {"futex_wait_simple", "__pthread_once_slow", "ReadSettings"};
  process->cycle = CycleInStacks{"thread 11 waits for itself", {11}};
  return *process;
}

TEST_F(DeadlockDetectorTest, ACycleThatOnlyStacksTellIsFoundInTenSecondsAndOnce) {
  Start();
  FakeProcess& process = AddOnceWait(&AddIdle());
  Pass(10);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_EQ(found_[0]->hang.cause, HangCause::kDeadlock);
  EXPECT_EQ(found_[0]->hang.explanation, "thread 11 waits for itself (inferred from the stacks)");
  EXPECT_TRUE(found_[0]->is_inferred);
  Pass(300);
  EXPECT_EQ(process.cycles_asked, 1);
  EXPECT_FALSE(found_[0]->over);
  process.threads[11].Run();
  process.threads[11].call = CallOf(SYS_epoll_wait);
  Pass(20);
  EXPECT_TRUE(found_[0]->over);
}

TEST_F(DeadlockDetectorTest, AWordThatOnlyLooksLikeAOnceFlagCostsOneLookAtItsThread) {
  Start();
  FakeProcess& process = AddOnceWait(&AddIdle());
  process.functions = {"futex_wait", "Queue::Take", "main"};
  Pass(100);
  EXPECT_EQ(process.functions_asked, 1);
  EXPECT_EQ(process.cycles_asked, 0);
  EXPECT_THAT(found_, IsEmpty());
}

TEST_F(DeadlockDetectorTest, AnInitializerThatTakesLongIsNoCycle) {
  Start();
  FakeProcess& process = AddOnceWait(&AddIdle());
  process.cycle.reset();
  Pass(100);
  EXPECT_EQ(process.cycles_asked, 1);
  EXPECT_THAT(found_, IsEmpty());
}

TEST_F(DeadlockDetectorTest, ACycleOfThreadsThatHaveRunSinceIsNotBelieved) {
  Start();
  FakeProcess& process = AddOnceWait(&AddIdle());
  process.AddThread(12, CallOf(SYS_epoll_wait));
  process.cycle = CycleInStacks{"2 threads wait for each other", {11, 12}};
  Pass(100, [&] { process.threads[12].Run(); });
  EXPECT_EQ(process.cycles_asked, 1);
  EXPECT_THAT(found_, IsEmpty());
}

// One has a lock that keeps no owner, and all of them wait.
TEST_F(DeadlockDetectorTest, AWaitForALockOfUnknownOwnerIsFoundIfEachThreadHasSleptSince) {
  Start();
  FakeProcess& process = AddOnceWait(&AddIdle());
  process.futexes[0xa0].value = 2;
  process.functions = {"syscall", "std::sys::sync::mutex::futex::Mutex::lock_contended", "bank::transfer"};
  process.cycle = CycleInStacks{"thread 11 waits for a mutex, and each other thread waits as well", {11}, true};
  Pass(10);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_TRUE(found_[0]->is_inferred);
}

TEST_F(DeadlockDetectorTest, AWaitForALockOfUnknownOwnerIsNothingBesideAThreadThatRuns) {
  Start();
  FakeProcess& process = AddOnceWait(&AddIdle());
  process.AddThread(12, CallOf(SYS_epoll_wait));
  process.cycle = CycleInStacks{"thread 11 waits for a mutex, and each other thread waits as well", {11, 12}, true};
  Pass(100, [&] { process.threads[12].Run(); });
  EXPECT_EQ(process.cycles_asked, 1);
  EXPECT_THAT(found_, IsEmpty());
}

TEST_F(DeadlockDetectorTest, AThreadThatWouldHoldALockOfSharedMemoryIsInNoCycle) {
  Start();
  FakeProcess& process = AddIdle();
  process.AddMutexWait(11, 0xa0, 11, /*kind=*/128);
  process.AddMutexWait(12, 0xb0, 13, /*kind=*/128);
  process.AddMutexWait(13, 0xc0, 12, /*kind=*/128);
  Pass(100);
  EXPECT_THAT(found_, IsEmpty());
}

}  // namespace
}  // namespace stackd
