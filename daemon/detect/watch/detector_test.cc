#include "daemon/detect/watch/detector.h"

#include "daemon/detect/watch/testing/detector_fixture.h"

namespace stackd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

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

// A thread sleeps at a lock, and one begins later.
TEST_F(DetectorTest, ACaptureIsToldWhichThreadBeganWhileAnotherSlept) {
  for (bool has_run_since : {false, true}) {
    probe_.processes.clear();
    Start();
    FakeProcess& process = AddIdle();
    process.AddMutexWait(11, 0xa0, 4711);
    Pass(20);
    process.AddReader(4711);
    const int64_t began_ns = now_ns_;
    Pass(20);
    if (has_run_since) process.threads[11].Run();
    const auto past = detector_->BeforeCapture("7-1");
    const std::optional<int64_t> absent_ns = past.at(4711).absent_at_ns, unmoved_ns = past.at(11).unmoved_since_ns;
    EXPECT_LE(absent_ns, began_ns);
    EXPECT_GT(absent_ns, began_ns - 10 * kNsPerSecond);
    EXPECT_EQ(unmoved_ns.has_value(), !has_run_since) << "behind the last look";
    EXPECT_LT(unmoved_ns, absent_ns);
    EXPECT_EQ(past.at(11).absent_at_ns, std::nullopt) << "it was there before the first look";
  }
}

TEST_F(DetectorTest, WithoutYoungerThreadsNoLookGoesBeforeACapture) {
  Start();
  AddDeadlock();
  Pass(20);
  int looks = 0;
  probe_.on_read_sched_stats = [&] { ++looks; };
  EXPECT_TRUE(detector_->BeforeCapture("7-1").at(11).unmoved_since_ns);
  EXPECT_EQ(looks, 0);
}

TEST_F(DetectorTest, ANumberThatWasUsedAgainBetweenTwoLooksIsAnotherThread) {
  Start();
  FakeProcess& process = AddIdle();
  process.AddThread(4711, CallOf(SYS_read));
  for (int i = 0; i < 9; ++i) process.threads[4711].Run();
  Pass(20);
  EXPECT_EQ(detector_->BeforeCapture("7-1").at(4711).absent_at_ns, std::nullopt);
  process.AddThread(4711, CallOf(SYS_read));
  Pass(20);
  EXPECT_TRUE(detector_->BeforeCapture("7-1").at(4711).absent_at_ns);
}

TEST_F(DetectorTest, ThreadsThatMoveAreCounted) {
  Start();
  FakeProcess& process = AddIdle();
  EXPECT_EQ(detector_->MovingThreads("7-1"), std::nullopt) << "before the first look";
  Pass(20);
  EXPECT_EQ(detector_->MovingThreads("7-1"), 0);
  process.AddThread(4711, CallOf(SYS_read));
  for (int i = 0; i < 20; ++i) {
    process.threads[4711].Run();
    Pass(1);
  }
  EXPECT_EQ(detector_->MovingThreads("7-1"), 1);
  EXPECT_EQ(detector_->MovingThreads("8-1"), std::nullopt) << "nobody has that number";
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

TEST_F(DetectorTest, LooksThatCostMuchComeLessOften) {
  Start();
  FakeProcess& process = AddIdle();
  probe_.on_read_sched_stats = [this] { cpu_ns_ += 10 * kNsPerMs; };
  Pass(600, [&] { process.threads[7].Run(); });
  EXPECT_LE(cpu_ns_, 600 * kNsPerSecond / 1000 + 10 * kNsPerMs);
}

TEST_F(DetectorTest, LooksThatConfirmWaitForWhatTheyCostToo) {
  Start();
  AddDeadlock();
  std::vector<int64_t> looks_ns;
  probe_.on_read_sched_stats = [&] {
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
  probe_.on_read_sched_stats = [this] { cpu_ns_ += kNsPerMs; };
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
