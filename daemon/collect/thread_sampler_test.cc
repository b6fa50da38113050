// What a Collector tells of a process between dumps: samples, schedstat, futexes, heartbeats.
#include <string.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <string>
#include <thread>

#include "daemon/collect/testing/waits_fixture.h"

namespace stackd {
namespace {

// --- Samples ---

TEST_F(WaitsTest, ASampleGivesWhatEachThreadSleepsIn) {
  Connect();
  std::thread helper([&] {
    const uint32_t seq = agent_->AwaitCommand();
    EXPECT_EQ(agent_->ring.header->command, static_cast<uint32_t>(STACKD_COMMAND_SAMPLE));
    EXPECT_EQ(agent_->ring.header->only_tid, 0u);
    agent_->Begin(seq, 3);
    agent_->WriteWaits(seq + 1, {{.tid = 9}});
    agent_->WriteWaits(seq, {{.tid = 1, .rsp = 0x7000, .rip = 0x4000, .syscall = Call(SYS_read, {7})}, {.tid = 2}});
    agent_->WriteWaits(seq, {{.tid = 3}});
    agent_->Finish(seq);
  });
  auto waits = collector_->SampleWaits(kId, MonotonicNs() + kLongNs);
  helper.join();
  ASSERT_TRUE(waits.has_value()) << waits.error().message;
  ASSERT_EQ(waits->size(), 3u) << "those of another sample are not taken";
  EXPECT_EQ((*waits)[0].tid, 1);
  EXPECT_EQ((*waits)[0].rsp_avma, 0x7000u);
  EXPECT_EQ((*waits)[0].rip_avma, 0x4000u);
  EXPECT_EQ((*waits)[0].call->number, static_cast<uint32_t>(SYS_read));
  EXPECT_FALSE((*waits)[1].call.has_value());
  EXPECT_EQ(collector_->Counters()["captures"], 0);
}

TEST_F(WaitsTest, AProcessThatMayNotLookAtItsThreadsSaysSoAmongItsLimits) {
  Connect();
  const auto limits = [&] { return collector_->Processes()[0].limits; };
  const auto sample = [&](int32_t failure) {
    std::thread helper([&] {
      const uint32_t seq = agent_->AwaitCommand();
      agent_->ring.header->failure = failure;
      agent_->Begin(seq, 3);
      agent_->WriteWaits(seq, {{.tid = 1}});
      agent_->Finish(seq);
    });
    auto waits = collector_->SampleWaits(kId, MonotonicNs() + kLongNs);
    helper.join();
    return waits;
  };
  const std::vector<std::string> before = limits();
  for (int32_t failure : {-EACCES, INT32_MIN, -EACCES}) {
    auto waits = sample(failure);
    ASSERT_FALSE(waits.has_value());
    EXPECT_EQ(waits.error().code, Code::kFailedPrecondition);
    EXPECT_EQ(limits().size(), before.size() + 1);
  }
  EXPECT_EQ(
      limits().back(),
      "what its threads sleep in cannot be read (Permission denied): deadlocks and standstills of it are not noticed");
  EXPECT_TRUE(sample(0).has_value());
  EXPECT_EQ(limits(), before);
}

TEST_F(WaitsTest, ADumpOfAProcessThatCannotListItsThreadsEndsAtOnceAndSaysWhy) {
  Connect();
  std::thread helper([&] {
    const uint32_t seq = agent_->AwaitCommand();
    agent_->ring.header->failure = -EMFILE;
    agent_->Finish(seq);
  });
  const int64_t begin_ns = MonotonicNs();
  auto capture = collector_->CaptureProcess(kId, {.deadline_ns = MonotonicNs() + kLongNs});
  helper.join();
  EXPECT_LT(MonotonicNs() - begin_ns, kLongNs / 4);
  ASSERT_TRUE(capture.has_value());
  EXPECT_TRUE((*capture)->partial);
  EXPECT_THAT((*capture)->notes, Contains("its agent could not list its threads: Too many open files"));
}

TEST_F(WaitsTest, ASampleGivesWayToADump) {
  Connect();
  std::promise<void> sampling;
  std::thread helper([&] {
    const uint32_t sample_seq = agent_->AwaitCommand();
    sampling.set_value();
    const uint32_t seq = agent_->AwaitCommand();
    EXPECT_EQ(agent_->ring.header->command, static_cast<uint32_t>(STACKD_COMMAND_DUMP));
    EXPECT_EQ(__atomic_load_n(&agent_->ring.header->cancel_seq, __ATOMIC_SEQ_CST), sample_seq);
    agent_->AnswerDump(seq, 2);
  });
  Result<std::vector<ThreadWait>> waits;
  std::thread detector([&] { waits = collector_->SampleWaits(kId, MonotonicNs() + kLongNs); });
  sampling.get_future().wait();
  const int64_t begin_ns = MonotonicNs();
  auto capture = collector_->CaptureProcess(kId, {.deadline_ns = MonotonicNs() + kLongNs});
  EXPECT_LT(MonotonicNs() - begin_ns, kLongNs / 4);
  helper.join();
  detector.join();
  ASSERT_TRUE(capture.has_value());
  EXPECT_EQ((*capture)->threads.size(), 2u);
  ASSERT_FALSE(waits.has_value());
  EXPECT_EQ(waits.error().code, Code::kAborted);
}

TEST_F(WaitsTest, ASampleWaitsForADumpThatRuns) {
  Connect();
  std::promise<void> dumping;
  std::promise<void> finish;
  std::thread helper([&] {
    const uint32_t seq = agent_->AwaitCommand();
    dumping.set_value();
    finish.get_future().wait();
    agent_->AnswerDump(seq, 2);
  });
  std::thread dump([&] { collector_->CaptureProcess(kId, {.deadline_ns = MonotonicNs() + kLongNs}); });
  dumping.get_future().wait();
  auto waits = collector_->SampleWaits(kId, MonotonicNs() + 10 * kNsPerMs);
  finish.set_value();
  helper.join();
  dump.join();
  ASSERT_FALSE(waits.has_value());
  EXPECT_EQ(waits.error().code, Code::kDeadlineExceeded);
}

TEST_F(WaitsTest, ASampleOfAProcessThatDoesNotAnswerEndsByItsDeadline) {
  Connect();
  auto waits = collector_->SampleWaits(kId, MonotonicNs() + 10 * kNsPerMs);
  ASSERT_FALSE(waits.has_value());
  EXPECT_EQ(waits.error().code, Code::kDeadlineExceeded);
}

TEST_F(WaitsTest, ASampleOfAProcessThatEndsIsNotFound) {
  Connect();
  std::thread helper([&] {
    agent_->AwaitCommand();
    agent_->Close();
  });
  auto waits = collector_->SampleWaits(kId, MonotonicNs() + kLongNs);
  helper.join();
  ASSERT_FALSE(waits.has_value());
  EXPECT_EQ(waits.error().code, Code::kNotFound);
}

TEST_F(WaitsTest, OfAProcessThatIsNotThereNothingIsKnown) {
  EXPECT_EQ(collector_->ReadSchedStats("9-9").error().code, Code::kNotFound);
  EXPECT_EQ(collector_->SampleWaits("9-9", MonotonicNs()).error().code, Code::kNotFound);
  EXPECT_EQ(collector_->ReadFutexes("9-9", {}).error().code, Code::kNotFound);
  EXPECT_EQ(collector_->Heartbeats("9-9").error().code, Code::kNotFound);
  EXPECT_EQ(collector_->StateOf("9-9", 0), 0);
}

// --- SchedStat, futexes, states ---

TEST_F(WaitsTest, SchedStatTellsAThreadThatRunsFromOneThatSleeps) {
  Connect();
  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false;
  std::promise<int32_t> sleeper_tid;
  std::thread sleeper([&] {
    std::unique_lock lock(mutex);
    sleeper_tid.set_value(gettid());
    changed.wait(lock, [&] { return stop; });
  });
  const int32_t sleeping = sleeper_tid.get_future().get();
  while (collector_->StateOf(kId, sleeping) != 'S') sched_yield();
  const auto sched_stat_of = [&](int32_t tid) {
    auto sched_stats = collector_->ReadSchedStats(kId);
    EXPECT_TRUE(sched_stats.has_value());
    auto sched_stat = std::ranges::find(*sched_stats, tid, &ThreadSchedStat::tid);
    EXPECT_NE(sched_stat, sched_stats->end());
    return *sched_stat;
  };
  const ThreadSchedStat asleep = sched_stat_of(sleeping), awake = sched_stat_of(gettid());
  for (int64_t until_ns = MonotonicNs() + 20 * kNsPerMs; MonotonicNs() < until_ns;) sched_yield();
  EXPECT_EQ(sched_stat_of(sleeping).run_count, asleep.run_count);
  EXPECT_EQ(sched_stat_of(sleeping).run_ns, asleep.run_ns);
  EXPECT_GT(sched_stat_of(gettid()).run_ns, awake.run_ns);
  EXPECT_GT(asleep.run_count, 0u);
  {
    std::lock_guard lock(mutex);
    stop = true;
    changed.notify_all();
  }
  sleeper.join();
}

TEST_F(WaitsTest, SchedStatOfAProcessThatPassedNoFolderIsUnavailable) {
  stackd_hello hello = Hello(5);
  hello.flags = STACKD_HELLO_HAS_MEM;
  std::vector<Fd> files;
  files.push_back(OpenProc("mem"));
  Connect(hello, files);
  EXPECT_EQ(collector_->ReadSchedStats(kId).error().code, Code::kUnavailable);
  EXPECT_EQ(collector_->StateOf(kId, 0), 0);
}

TEST_F(WaitsTest, FutexesCanBeReadBetweenDumps) {
  Connect();
  const Mutex mutex{.owner = 3};
  const FutexWait waits[] = {{1, reinterpret_cast<uint64_t>(&mutex)}, {2, 8}, {3, reinterpret_cast<uint64_t>(&mutex)}};
  auto words = collector_->ReadFutexes(kId, waits);
  ASSERT_TRUE(words.has_value());
  ASSERT_EQ(words->size(), 1u);
  EXPECT_EQ((*words)[0].mutex->owner_tid, 3);
}

TEST_F(WaitsTest, FutexesOfAProcessWhoseMemoryCannotBeReadAreUnavailable) {
  stackd_hello hello = Hello(5);
  hello.flags = 0;
  Connect(hello, {});
  EXPECT_EQ(collector_->ReadFutexes(kId, {}).error().code, Code::kUnavailable);
}

// --- Heartbeats ---

TEST_F(WaitsTest, HeartbeatsAreThoseRegisteredNow) {
  Connect();
  EXPECT_THAT(*collector_->Heartbeats(kId), IsEmpty());
  stackd_heartbeat_cell& loop = agent_->heartbeat(3);
  loop.beats = 17;
  loop.tid = 12;
  strcpy(loop.name, "event-loop");
  EXPECT_THAT(*collector_->Heartbeats(kId), IsEmpty()) << "without a limit it is free";
  loop.limit_ms = 5000;
  agent_->heartbeat(63).limit_ms = 1;
  memset(agent_->heartbeat(63).name, 0xff, 48);
  agent_->heartbeat(63).name[0] = '\n';
  auto heartbeats = collector_->Heartbeats(kId);
  ASSERT_TRUE(heartbeats.has_value());
  ASSERT_EQ(heartbeats->size(), 2u);
  EXPECT_EQ((*heartbeats)[0].name, "event-loop");
  EXPECT_EQ((*heartbeats)[0].tid, 12);
  EXPECT_EQ((*heartbeats)[0].limit_ns, 5 * kNsPerSecond);
  EXPECT_EQ((*heartbeats)[0].beats, 17u);
  EXPECT_EQ((*heartbeats)[0].cell, 3u);
  EXPECT_EQ((*heartbeats)[1].name, std::string(48, '?'));
  EXPECT_EQ((*heartbeats)[1].limit_ns, 10 * kNsPerMs) << "no limit is shorter";
  EXPECT_EQ((*heartbeats)[1].beats, 0u);
  EXPECT_EQ((*heartbeats)[1].cell, 63u);
  loop.limit_ms = 0;
  EXPECT_THAT(*collector_->Heartbeats(kId), SizeIs(1));
}

}  // namespace
}  // namespace stackd
