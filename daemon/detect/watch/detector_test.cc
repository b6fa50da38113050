#include "daemon/detect/watch/detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "daemon/testing/fake_probe.h"

namespace stackd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int32_t kHelper = 99;

class DetectorTest : public testing::Test {
 protected:
  // Lets time pass, with a look whenever one is due. `each_look` is what the processes do before it.
  void Pass(int64_t seconds, const std::function<void()>& each_look = [] {}) { PassNs(seconds * kNsPerSecond, each_look); }
  void PassNs(int64_t time_ns, const std::function<void()>& each_look) {
    const int64_t end_ns = now_ns_ + time_ns;
    while (now_ns_ < end_ns) {
      each_look();
      const int64_t next_ns = detector_->Look(now_ns_);
      // Where a look took long, some are overdue.
      if (waited_ns_ == 0) {
        ASSERT_GT(next_ns, now_ns_);
      }
      now_ns_ = std::min(std::max(next_ns, now_ns_ + std::exchange(waited_ns_, 0)), end_ns);
    }
  }

  void Start(Rules rules = BuiltInRules()) {
    DetectorOptions options{.rules = std::move(rules),
                            .on_suspicion =
                                [this](SharedSuspicion suspicion) {
                                  found_at_ns_.push_back(now_ns_);
                                  found_.push_back(std::move(suspicion));
                                },
                            .on_gone = [this](const std::string& id) { gone_.push_back(id); },
                            .clock = [this] { return now_ns_ + waited_ns_; },
                            .cpu_clock = [this] { return cpu_ns_; }};
    detector_ = std::make_unique<Detector>(&probe_, std::move(options));
  }

  // Two threads that wait for each other, one that waits for work, and the helper.
  FakeProcess& AddDeadlock(const std::string& id = "7-1") {
    FakeProcess& process = AddIdle(id);
    process.AddMutexWait(11, 0xa0, 12);
    process.AddMutexWait(12, 0xb0, 11);
    return process;
  }
  FakeProcess& AddIdle(const std::string& id = "7-1") {
    FakeProcess& process = probe_.Add(id);
    process.AddThread(7, CallOf(SYS_epoll_wait));
    process.AddThread(8, FutexCall(0xc0, FUTEX_WAIT_BITSET_PRIVATE));
    process.futexes[0xc0] = {.avma = 0xc0, .value = 4};
    process.AddThread(kHelper, CallOf(SYS_recvmsg));
    process.helper_tid = kHelper;
    return process;
  }

  FakeProbe probe_;
  std::vector<SharedSuspicion> found_;
  std::vector<int64_t> found_at_ns_;
  std::vector<std::string> gone_;
  int64_t now_ns_ = 1000 * kNsPerSecond;
  int64_t waited_ns_ = 0;  // for answers, within looks
  int64_t cpu_ns_ = 0;
  std::unique_ptr<Detector> detector_;
};

TEST_F(DetectorTest, ADeadlockIsFoundOnceWithinTenSeconds) {
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

TEST_F(DetectorTest, ACircleOfLocksThatRuntimesKnowIsADeadlockThatACaptureProves) {
  Start();
  FakeProcess& process = AddIdle();
  for (int32_t tid : {11, 12}) process.AddThread(tid, FutexCall(0xa0 + 16 * static_cast<uint64_t>(tid)));
  process.lock_waits = {{ManagedLockKind::kMonitor, 11, 12, 0x7000, "Account"},
                        {ManagedLockKind::kMonitor, 12, 11, 0x8000, "Order"}};
  process.circle = CircleInStacks{"2 threads wait for each other in a circle", {11, 12}};
  const int64_t begin_ns = now_ns_;
  // A monitor's waiter wakes to look whether it is free, and waits on.
  Pass(30, [&] { process.threads[11].Run(); });
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_LE(found_at_ns_[0] - begin_ns, 10 * kNsPerSecond);
  EXPECT_EQ(found_[0]->hang.cause, HangCause::kDeadlock);
  EXPECT_EQ(found_[0]->hang.explanation, "2 threads wait for each other in a circle");
  EXPECT_FALSE(found_[0]->is_inferred);
  EXPECT_FALSE(found_[0]->over);
  EXPECT_EQ(process.circles_asked, 1);
  process.lock_waits.pop_back();
  process.threads[12].Run();
  Pass(30);
  EXPECT_TRUE(found_[0]->over);
}

TEST_F(DetectorTest, ACircleOfSuchLocksThatNoCaptureProvesIsNone) {
  Start();
  FakeProcess& process = AddIdle();
  process.AddMutexWait(11, 0xa0, 12);
  process.AddThread(12, FutexCall(0xb0));
  process.lock_waits = {{ManagedLockKind::kMonitor, 12, 11, 0x7000, "Account"}};
  Pass(60);
  EXPECT_THAT(found_, IsEmpty());
  EXPECT_EQ(process.circles_asked, 3) << "through a mutex of the C library, too, and no more often";
}

TEST_F(DetectorTest, AThreadThatWaitsForItselfIsADeadlock) {
  Start();
  AddIdle().AddMutexWait(11, 0xa0, 11);
  Pass(10);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_EQ(found_[0]->hang.explanation, "thread 11 waits for a lock that it holds itself");
}

TEST_F(DetectorTest, ACircleWhoseThreadsRunBetweenTwoLooksIsNone) {
  Start();
  FakeProcess& process = AddDeadlock();
  Pass(60, [&] { process.threads[12].Run(); });
  EXPECT_THAT(found_, IsEmpty());
}

TEST_F(DetectorTest, AWaitWithATimeLimitIsNoDeadlock) {
  Start();
  FakeProcess& process = AddDeadlock();
  process.threads[12].call = FutexCall(0xb0, FUTEX_WAIT_BITSET_PRIVATE, 0x7ffe0000);
  Pass(30);
  EXPECT_THAT(found_, IsEmpty());
}

TEST_F(DetectorTest, ADumpDoesNotMakeADeadlockLookNew) {
  Start();
  FakeProcess& process = AddDeadlock();
  Pass(10);
  ASSERT_THAT(found_, SizeIs(1));
  process.AnswerCapture();
  detector_->AfterCapture("7-1");
  Pass(100);
  EXPECT_THAT(found_, SizeIs(1));
  EXPECT_FALSE(found_[0]->over);
  EXPECT_LT(detector_->BeforeCapture("7-1").at(11), now_ns_ - 100 * kNsPerSecond);
}

TEST_F(DetectorTest, ALookBetweenTheTwoHalvesOfADumpMakesNoDifference) {
  Start();
  FakeProcess& process = AddDeadlock();
  Pass(10);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_GT(now_ns_ - detector_->BeforeCapture("7-1").at(11), 5 * kNsPerSecond);
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

TEST_F(DetectorTest, ManyDumpsBeforeTheNextSampleDoNotEndADeadlock) {
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

TEST_F(DetectorTest, ThreadsThatRunMoreThanDumpsMakeThemHaveMoved) {
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

TEST_F(DetectorTest, ADeadlockIsOverWhenOneOfItsThreadsRuns) {
  Start();
  FakeProcess& process = AddDeadlock();
  Pass(10);
  ASSERT_THAT(found_, SizeIs(1));
  process.threads[11].Run();
  process.threads[11].call = CallOf(SYS_epoll_wait);
  Pass(10);
  EXPECT_TRUE(found_[0]->over);
}

TEST_F(DetectorTest, WhatWasSuspectedIsOverWhenTheProcessHasGone) {
  Start();
  AddDeadlock();
  Pass(10);
  ASSERT_THAT(found_, SizeIs(1));
  probe_.processes.clear();
  Pass(2);
  EXPECT_TRUE(found_[0]->over);
  EXPECT_THAT(gone_, ElementsAre("7-1"));
  EXPECT_THAT(detector_->BeforeCapture("7-1"), IsEmpty());
}

TEST_F(DetectorTest, AnIdleProcessIsSampledOnce) {
  Start();
  FakeProcess& process = AddIdle();
  Pass(600);
  EXPECT_THAT(found_, IsEmpty());
  EXPECT_EQ(process.samples, 1);
  EXPECT_LE(detector_->Counters().at("hang_looks"), 125);
}

TEST_F(DetectorTest, AHelperThatRanBeforeTheFirstSampleIsKnownByTheNext) {
  Start();
  FakeProcess& process = AddIdle();
  // Two looks, the second of which samples.
  Pass(3, [&] { process.threads[kHelper].Run(); });
  ASSERT_EQ(process.samples, 1);
  Pass(300);
  EXPECT_EQ(process.samples, 2);
}

TEST_F(DetectorTest, SamplesKeepADistanceHoweverOftenThreadsSleepAnew) {
  for (int64_t cost_ns : {0 * kNsPerMs, 20 * kNsPerMs}) {
    probe_.processes.clear();
    Start();
    FakeProcess& process = AddIdle();
    process.sample_cost_ns = cost_ns;
    for (int32_t tid : {20, 21, 22}) process.AddThread(tid, CallOf(SYS_epoll_wait));
    int looks = 0;
    // At each look some thread has just fallen asleep.
    Pass(400, [&] { process.threads[20 + (++looks / 4) % 3].Run(); });
    EXPECT_LE(process.samples, cost_ns == 0 ? 101 : 41);
    EXPECT_GE(process.samples, 20);
  }
}

TEST_F(DetectorTest, AStandstillWithSomebodyAtALockIsFoundAfterItsTime) {
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

TEST_F(DetectorTest, AStandstillOutlastsTheDumpsOfOthers) {
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

TEST_F(DetectorTest, ALockOfAThreadThatEndedIsAStandstill) {
  Start();
  AddIdle().AddMutexWait(11, 0xa0, 4711);
  Pass(70);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_THAT(found_[0]->hang.explanation, HasSubstr("which thread 4711, which has ended, held"));
  EXPECT_EQ(found_[0]->hang.tid, 11);
}

TEST_F(DetectorTest, ALockThatAnotherProcessHasIsNoStandstill) {
  Start();
  FakeProcess& process = AddIdle();
  process.AddMutexWait(11, 0xa0, 4711, /*kind=*/128);
  process.threads[11].call = FutexCall(0xa0, FUTEX_WAIT);
  Pass(100);
  EXPECT_THAT(found_, IsEmpty());
}

TEST_F(DetectorTest, AnIdlePoolWhoseLeaderHoldsALockWhileItWaitsForWorkIsWell) {
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

TEST_F(DetectorTest, AnOwnerThatAnotherThreadIsToWakeIsWellWhereWorkMayComeIn) {
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

TEST_F(DetectorTest, AnOwnerThatWaitsInSharedMemoryIsWell) {
  Start();
  FakeProcess& process = AddIdle();
  process.threads[7].call = CallOf(SYS_pause);
  process.AddThread(12, FutexCall(0xc0, FUTEX_WAIT));
  process.futexes[0xc0] = {.avma = 0xc0, .is_shared = true};
  process.AddMutexWait(11, 0xa0, 12);
  Pass(100);
  EXPECT_THAT(found_, IsEmpty());
}

// Thread 11 waits on a word that looks like a once flag while its initializer runs.
FakeProcess& AddOnceWait(FakeProcess* process) {
  process->AddThread(11, FutexCall(0xa0));
  process->futexes[0xa0] = {.avma = 0xa0, .value = 1};
  process->functions = {"futex_wait_simple", "__pthread_once_slow", "ReadSettings"};
  process->circle = CircleInStacks{"thread 11 waits for itself", {11}};
  return *process;
}

TEST_F(DetectorTest, ACircleThatOnlyStacksTellIsFoundInTenSecondsAndOnce) {
  Start();
  FakeProcess& process = AddOnceWait(&AddIdle());
  Pass(10);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_EQ(found_[0]->hang.cause, HangCause::kDeadlock);
  EXPECT_EQ(found_[0]->hang.explanation, "thread 11 waits for itself (inferred from the stacks)");
  EXPECT_TRUE(found_[0]->is_inferred);
  Pass(300);
  EXPECT_EQ(process.circles_asked, 1);
  EXPECT_FALSE(found_[0]->over);
  process.threads[11].Run();
  process.threads[11].call = CallOf(SYS_epoll_wait);
  Pass(20);
  EXPECT_TRUE(found_[0]->over);
}

TEST_F(DetectorTest, AWordThatOnlyLooksLikeAOnceFlagCostsOneLookAtItsThread) {
  Start();
  FakeProcess& process = AddOnceWait(&AddIdle());
  process.functions = {"futex_wait", "Queue::Take", "main"};
  Pass(100);
  EXPECT_EQ(process.functions_asked, 1);
  EXPECT_EQ(process.circles_asked, 0);
  EXPECT_THAT(found_, IsEmpty());
}

TEST_F(DetectorTest, AnInitializerThatTakesLongIsNoCircle) {
  Start();
  FakeProcess& process = AddOnceWait(&AddIdle());
  process.circle.reset();
  Pass(100);
  EXPECT_EQ(process.circles_asked, 1);
  EXPECT_THAT(found_, IsEmpty());
}

TEST_F(DetectorTest, ACircleOfThreadsThatHaveRunSinceIsNotBelieved) {
  Start();
  FakeProcess& process = AddOnceWait(&AddIdle());
  process.AddThread(12, CallOf(SYS_epoll_wait));
  process.circle = CircleInStacks{"2 threads wait for each other", {11, 12}};
  Pass(100, [&] { process.threads[12].Run(); });
  EXPECT_EQ(process.circles_asked, 1);
  EXPECT_THAT(found_, IsEmpty());
}

// One has a lock that keeps no owner, and all of them wait.
TEST_F(DetectorTest, AWaitForALockOfUnknownOwnerIsFoundIfEachThreadHasSleptSince) {
  Start();
  FakeProcess& process = AddOnceWait(&AddIdle());
  process.futexes[0xa0].value = 2;
  process.functions = {"syscall", "std::sys::sync::mutex::futex::Mutex::lock_contended", "bank::transfer"};
  process.circle = CircleInStacks{"thread 11 waits for a mutex, and each other thread waits as well", {11}, true};
  Pass(10);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_TRUE(found_[0]->is_inferred);
}

TEST_F(DetectorTest, AWaitForALockOfUnknownOwnerIsNothingBesideAThreadThatRuns) {
  Start();
  FakeProcess& process = AddOnceWait(&AddIdle());
  process.AddThread(12, CallOf(SYS_epoll_wait));
  process.circle = CircleInStacks{"thread 11 waits for a mutex, and each other thread waits as well", {11, 12}, true};
  Pass(100, [&] { process.threads[12].Run(); });
  EXPECT_EQ(process.circles_asked, 1);
  EXPECT_THAT(found_, IsEmpty());
}

TEST_F(DetectorTest, AThreadThatWouldHoldALockOfSharedMemoryIsInNoCircle) {
  Start();
  FakeProcess& process = AddIdle();
  process.AddMutexWait(11, 0xa0, 11, /*kind=*/128);
  process.AddMutexWait(12, 0xb0, 13, /*kind=*/128);
  process.AddMutexWait(13, 0xc0, 12, /*kind=*/128);
  Pass(100);
  EXPECT_THAT(found_, IsEmpty());
}

TEST_F(DetectorTest, AProcessInWhichOneThreadRunsNowAndThenMakesProgress) {
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

TEST_F(DetectorTest, AThreadThatWantsToRunAndGetsNoCoreIsNoStandstill) {
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

TEST_F(DetectorTest, AProcessThatIsStoppedOrFrozenIsNotToBlame) {
  for (bool is_frozen : {false, true}) {
    probe_.processes.clear();
    Start();
    FakeProcess& process = AddIdle();
    process.AddReader(12);
    process.AddMutexWait(11, 0xa0, 12);
    process.heartbeats = {{.name = "loop", .tid = 7, .limit_ns = 5 * kNsPerSecond, .beats = 3}};
    Pass(3, [&] { ++process.heartbeats[0].beats; });
    process.state = is_frozen ? 'S' : 't';
    process.is_frozen = is_frozen;
    Pass(200);
    EXPECT_THAT(found_, IsEmpty()) << is_frozen;
    EXPECT_GT(detector_->Counters().at("hangs_stopped"), 0);
    process.state = 'S';
    process.is_frozen = false;
    // It has its whole time to beat again.
    PassNs(4500 * kNsPerMs, [] {});
    EXPECT_THAT(found_, IsEmpty()) << is_frozen;
    Pass(60);
    EXPECT_THAT(found_, testing::Not(IsEmpty())) << is_frozen;
    found_.clear();
  }
}

TEST_F(DetectorTest, ProcessesThatDoNotAnswerDoNotHideWhatIsWrongWithOthers) {
  Start();
  probe_.on_sample = [this](const std::string& id) {
    if (probe_.processes.at(id).sample_error) waited_ns_ += 300 * kNsPerMs;
  };
  for (int i = 0; i < 50; ++i) {
    FakeProcess& hostile = AddIdle("hostile " + std::to_string(i));
    hostile.sample_error = Status{Code::kDeadlineExceeded, "no answer"};
    hostile.heartbeats = {{.name = "loop", .tid = 7, .limit_ns = 10 * kNsPerMs, .beats = 1}};
  }
  FakeProcess& victim = AddIdle("victim");
  victim.heartbeats = {{.name = "loop", .tid = 8, .limit_ns = 5 * kNsPerSecond, .beats = 3}};
  int64_t looks = 0;
  // They beat and stop, and their threads run, as they like.
  const auto annoy = [&] {
    if (++looks % 5 != 0) return;
    for (auto& [id, process] : probe_.processes) {
      if (!process.sample_error) continue;
      process.heartbeats[0].beats += 1;
      process.threads[7].Run();
    }
  };
  // Varies which process is asked next when the victim hangs.
  for (int64_t seconds : {120, 31, 47, 13, 59}) {
    Pass(seconds, [&] {
      annoy();
      ++victim.heartbeats[0].beats;
    });
    const auto is_of_victim = [](const auto& suspicion) { return suspicion->process_id == "victim"; };
    ASSERT_TRUE(std::ranges::none_of(found_, is_of_victim));
    const int64_t begin_ns = now_ns_;
    Pass(10, annoy);
    const auto found = std::ranges::find_if(found_, is_of_victim);
    ASSERT_NE(found, found_.end()) << seconds;
    EXPECT_EQ((*found)->hang.cause, HangCause::kHeartbeatMissed);
    EXPECT_LE(found_at_ns_[found - found_.begin()] - begin_ns, 6 * kNsPerSecond);
    found_.clear();
    found_at_ns_.clear();
  }
}

TEST_F(DetectorTest, AProcessThatDoesNotAnswerButRunsMissesItsHeartbeat) {
  Start();
  FakeProcess& process = AddIdle();
  process.sample_error = Status{Code::kDeadlineExceeded, "no answer"};
  process.heartbeats = {{.name = "a", .tid = 7, .limit_ns = kNsPerSecond, .beats = 1, .cell = 1},
                        {.name = "b", .tid = 8, .limit_ns = 3 * kNsPerSecond, .beats = 1, .cell = 2}};
  const auto run = [&] { process.threads[7].Run(); };
  probe_.on_sample = [&](const std::string&) { run(); };
  const int64_t begin_ns = now_ns_;
  Pass(10, run);
  ASSERT_THAT(found_, SizeIs(2));
  EXPECT_LE(found_at_ns_[1] - begin_ns, 4 * kNsPerSecond) << "while it is not asked";
  EXPECT_LE(process.samples_asked, 4);
}

TEST_F(DetectorTest, AnAnswerThatGaveWayToADumpExcusesNobody) {
  Start();
  FakeProcess& process = AddIdle();
  process.sample_error = Status{Code::kAborted, "a dump went first"};
  process.heartbeats = {{.name = "loop", .tid = 7, .limit_ns = kNsPerSecond, .beats = 1}};
  Pass(5);
  EXPECT_THAT(found_, IsEmpty());
  process.sample_error.reset();
  Pass(1);
  EXPECT_THAT(found_, SizeIs(1));
}

TEST_F(DetectorTest, WhatWasSuspectedUnderAnotherNameIsOver) {
  Rules rules;
  for (const auto& rule : BuiltInRules()) {
    Rule named = *rule;
    named.process = "victim";
    rules.push_back(std::make_shared<const Rule>(named));
  }
  Start(rules);
  FakeProcess& process = AddDeadlock();
  process.heartbeats = {{.name = "loop", .tid = 7, .limit_ns = kNsPerSecond, .beats = 1}};
  Pass(20);
  ASSERT_THAT(found_, SizeIs(2));
  process.description.display_name = "other";
  Pass(60);
  EXPECT_TRUE(found_[0]->over);
  EXPECT_TRUE(found_[1]->over);
  EXPECT_THAT(found_, SizeIs(2));
}

TEST_F(DetectorTest, AMissedHeartbeatIsFoundWithinASecondOfItsLimit) {
  Start();
  FakeProcess& process = AddIdle();
  process.heartbeats = {{.name = "loop", .tid = 8, .limit_ns = 5 * kNsPerSecond, .beats = 3, .cell = 2}};
  Pass(20, [&] { ++process.heartbeats[0].beats; });
  ASSERT_THAT(found_, IsEmpty());
  const int64_t last_beat_ns = now_ns_;
  Pass(60);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_GT(found_at_ns_[0] - last_beat_ns, 4500 * kNsPerMs);
  EXPECT_LE(found_at_ns_[0] - last_beat_ns, 6 * kNsPerSecond);
  EXPECT_EQ(found_[0]->hang.cause, HangCause::kHeartbeatMissed);
  EXPECT_EQ(found_[0]->hang.heartbeat, "loop");
  EXPECT_EQ(found_[0]->hang.tid, 8);
  EXPECT_THAT(found_[0]->hang.explanation, HasSubstr("its limit is 5 s; its thread 8 sleeps"));
  EXPECT_FALSE(found_[0]->over);
  ++process.heartbeats[0].beats;
  Pass(1);
  EXPECT_TRUE(found_[0]->over);
}

TEST_F(DetectorTest, AHeartbeatThatBeganAndNeverCameAgainIsMissed) {
  Start();
  FakeProcess& process = AddIdle();
  Pass(5);
  process.heartbeats = {{.name = "once", .tid = 8, .limit_ns = 100 * kNsPerMs, .beats = 1}};
  const int64_t beat_ns = now_ns_;
  Pass(10);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_LE(found_at_ns_[0] - beat_ns, 1100 * kNsPerMs);
}

TEST_F(DetectorTest, WithoutARuleForItNothingIsLookedAt) {
  Rule only_other;
  only_other.name = "other";
  only_other.process = "somebody-else";
  only_other.trigger = RuleTrigger::kDeadlock;
  Start({std::make_shared<const Rule>(only_other)});
  FakeProcess& process = AddDeadlock();
  process.heartbeats = {{.name = "loop", .tid = 8, .limit_ns = kNsPerSecond, .beats = 1}};
  Pass(100);
  EXPECT_THAT(found_, IsEmpty());
  EXPECT_EQ(process.samples, 0);
  EXPECT_EQ(detector_->Counters().at("hang_looks"), 0);
}

TEST_F(DetectorTest, AThreadThatSpinsWhileOthersWaitForItsLockIsFound) {
  Start();
  FakeProcess& process = AddIdle();
  process.AddThread(12, std::nullopt);
  process.AddMutexWait(11, 0xa0, 12);
  process.functions = {"spin_until", "worker", "main"};
  int64_t before_ns = now_ns_;
  const auto burn = [&] { process.threads[12].motion.run_ns += now_ns_ - std::exchange(before_ns, now_ns_); };
  Pass(60, burn);
  ASSERT_THAT(found_, IsEmpty());
  Pass(20, burn);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_EQ(found_[0]->hang.cause, HangCause::kSpin);
  EXPECT_EQ(found_[0]->hang.tid, 12);
  EXPECT_THAT(found_[0]->hang.explanation, HasSubstr("stays in spin_until"));
  EXPECT_EQ(process.functions_asked, 5);
}

TEST_F(DetectorTest, AThreadThatComputesIsLeftAloneUnlessItKeepsOthersWaiting) {
  Start();
  FakeProcess& process = AddIdle();
  process.AddThread(12, std::nullopt);
  process.functions = {"multiply", "main"};
  int64_t before_ns = now_ns_;
  Pass(300, [&] { process.threads[12].motion.run_ns += now_ns_ - std::exchange(before_ns, now_ns_); });
  EXPECT_THAT(found_, IsEmpty());
  EXPECT_EQ(process.functions_asked, 0);
}

TEST_F(DetectorTest, AThreadThatGoesOnToOtherFunctionsDoesNotSpin) {
  Start();
  FakeProcess& process = AddIdle();
  process.AddThread(12, std::nullopt);
  process.AddMutexWait(11, 0xa0, 12);
  int64_t before_ns = now_ns_;
  Pass(300, [&] {
    process.threads[12].motion.run_ns += now_ns_ - std::exchange(before_ns, now_ns_);
    process.functions = {"step" + std::to_string(now_ns_), "main"};
  });
  EXPECT_THAT(found_, IsEmpty());
  EXPECT_LE(process.functions_asked, 10);
}

// --- SIGTERM ---

Rules NotGoneAfter(int64_t seconds) {
  Rule rule;
  rule.name = "not_gone";
  rule.trigger = RuleTrigger::kNotGone;
  rule.after_ns = seconds * kNsPerSecond;
  return {std::make_shared<const Rule>(rule)};
}

TEST_F(DetectorTest, AProcessThatHasTakenSigtermAndStaysIsReportedOnce) {
  Start(NotGoneAfter(20));
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

TEST_F(DetectorTest, ASigtermThatNobodyTakesIsReported) {
  Start(NotGoneAfter(1));
  FakeProcess& process = AddIdle();
  process.sigterm = {.is_pending = true};  // its memory cannot be read
  Pass(8);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_THAT(found_[0]->hang.explanation, HasSubstr("it has not even taken the signal"));
}

TEST_F(DetectorTest, ASigtermTakenFromTheQueueCountsAsTaken) {
  Start(NotGoneAfter(20));
  FakeProcess& process = AddIdle();
  process.sigterm.is_pending = true;
  Pass(5);
  process.sigterm.is_pending = false;
  Pass(20);
  ASSERT_THAT(found_, SizeIs(1));
  EXPECT_THAT(found_[0]->hang.explanation, HasSubstr("it has taken the signal"));
}

TEST_F(DetectorTest, SigtermIsNotLookedForWithoutARule) {
  Start();
  AddIdle().sigterm.is_pending = true;
  Pass(120);
  EXPECT_THAT(found_, IsEmpty());
}

TEST_F(DetectorTest, LooksThatCostMuchComeLessOften) {
  Start();
  FakeProcess& process = AddIdle();
  probe_.on_read_motion = [this] { cpu_ns_ += 10 * kNsPerMs; };
  Pass(600, [&] { process.threads[7].Run(); });
  EXPECT_LE(cpu_ns_, 600 * kNsPerSecond / 1000 + 10 * kNsPerMs);
}

TEST_F(DetectorTest, LooksThatConfirmWaitForWhatTheyCostToo) {
  Start();
  AddDeadlock();
  std::vector<int64_t> looks_ns;
  probe_.on_read_motion = [&] {
    cpu_ns_ += 50 * kNsPerMs;
    looks_ns.push_back(now_ns_);
  };
  Pass(300);
  ASSERT_THAT(found_, SizeIs(1));
  for (size_t i = 1; i < looks_ns.size(); ++i) EXPECT_GE(looks_ns[i] - looks_ns[i - 1], 5 * kNsPerSecond);
}

TEST_F(DetectorTest, LooksAtManyProcessesComeLessOften) {
  Start();
  for (int i = 0; i < 100; ++i) AddIdle(std::to_string(i));
  probe_.on_read_motion = [this] { cpu_ns_ += kNsPerMs; };
  Pass(600, [&] {
    for (auto& [id, process] : probe_.processes) process.threads[7].Run();
  });
  // What the first ten seconds teach is used from then on.
  EXPECT_LE(cpu_ns_, 600 * kNsPerSecond / 80);
  EXPECT_GE(detector_->Counters().at("hang_looks"), 100 * 20);
}

TEST_F(DetectorTest, AThreadOfItsOwnLooks) {
  Start();
  AddIdle();
  detector_->Start();
  while (detector_->Counters().at("hang_looks") == 0) std::this_thread::yield();
  detector_->Stop();
}

}  // namespace
}  // namespace stackd
