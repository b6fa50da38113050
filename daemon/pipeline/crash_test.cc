// Crashes on their way through the pipeline, and the backlog in which they wait for their names.
#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <future>
#include <mutex>

#include "daemon/assemble/assemble.h"
#include "daemon/pipeline/crash_backlog.h"
#include "daemon/pipeline/testing/pipeline_fixture.h"
#include "daemon/store/raw_capture.h"

namespace stackd {
namespace {

using testing::ElementsAre;

class CrashPipelineTest : public PipelineTest {
 protected:
  static std::shared_ptr<Capture> Crash(uint64_t id, int pid = 7) {
    auto capture = FakeCapture(pid, {{kFakeBias + 0x20, kFakeBias + 0x31}, {kFakeBias + 0x40}});
    capture->trigger = Trigger::kCrash;
    capture->crash = CrashCapture{.id = {id, 0}, .tid = pid, .signal_number = SIGSEGV, .fault_address_avma = 8};
    return capture;
  }
  std::vector<v1::Dump> Stored() { return store_->List({})->dumps; }
  bool AwaitFinished(int64_t count) {
    for (int64_t until_ns = MonotonicNs() + 20 * kNsPerSecond; MonotonicNs() < until_ns; usleep(1000)) {
      if (pipeline_->Counters()["dumps_crash"] == count) return true;
    }
    return false;
  }
};

TEST_F(CrashPipelineTest, IsReleasedWhenItsRawCopyIsStoredAndFinishedLater) {
  bool stored_before_release = false;
  pipeline_->AddCrash(Crash(1), [&] { stored_before_release = store_->GetRaw(Stored().at(0).name()).has_value(); });
  EXPECT_TRUE(stored_before_release);
  ASSERT_TRUE(AwaitFinished(1));
  auto dump = store_->Get(Stored().at(0).name());
  ASSERT_TRUE(dump.has_value());
  EXPECT_EQ(dump->trigger(), v1::Dump::CRASH);
  EXPECT_EQ(dump->crash().signal_name(), "SIGSEGV");
  EXPECT_EQ(dump->crash().tid(), 7);
  EXPECT_EQ(dump->stacks(dump->threads(0).stack()).frames(0).function(), "f20");
}

TEST_F(CrashPipelineTest, ThatIsKnownIsReleasedAndNotStoredAgain) {
  int released = 0;
  for (int i = 0; i < 3; i++) pipeline_->AddCrash(Crash(1, 7 + i), [&] { ++released; });
  EXPECT_EQ(released, 3);
  EXPECT_EQ(Stored().size(), 1u);
  EXPECT_EQ(pipeline_->Counters()["crashes_known"], 2);
}

TEST_F(CrashPipelineTest, ThatTheStoreDoesNotTakeIsNotReleasedAndToldAllTheSame) {
  auto capture = Crash(1);
  capture->process.id = "../7";
  bool released = false;
  pipeline_->AddCrash(std::move(capture), [&] { released = true; });
  EXPECT_FALSE(released);
  EXPECT_EQ(pipeline_->Counters()["dumps_crash"], 1);
  EXPECT_EQ(pipeline_->Counters()["dumps_unstored"], 1);
}

TEST_F(CrashPipelineTest, OfAFileThatTheStoreDoesNotTakeWaitsInItsFile) {
  auto capture = Crash(1);
  capture->process.id = "../7";
  capture->crash->from_spool = true;
  bool released = false;
  pipeline_->AddCrash(std::move(capture), [&] { released = true; });
  EXPECT_FALSE(released);
  EXPECT_EQ(pipeline_->Counters()["dumps_crash"], 0);
}

TEST_F(CrashPipelineTest, IsToldToWatchers) {
  std::promise<std::string> told;
  auto handle =
      pipeline_->Watch([&](std::shared_ptr<const v1::Dump> dump) { told.set_value(dump->crash().signal_name()); });
  pipeline_->AddCrash(Crash(1), [] {});
  auto name = told.get_future();
  ASSERT_EQ(name.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(name.get(), "SIGSEGV");
}

TEST_F(CrashPipelineTest, LeftUnfinishedIsFinishedByTheNextDaemon) {
  char file[] = "/tmp/pipeline-XXXXXX";
  ASSERT_GE(mkstemp(file), 0);
  std::string name;
  {
    auto store = std::move(*DumpStore::Open({.file = file}));
    auto capture = Crash(1);
    v1::Dump header = DumpHeader(*capture, "20261121T000000000Z-1");
    header.mutable_crash()->set_id("00000000000000010000000000000000");
    name = header.name();
    ASSERT_TRUE(store->PutRaw(header, SerializeRaw(*capture)).has_value());
  }
  store_ = std::move(*DumpStore::Open({.file = file}));
  EXPECT_THAT(store_->Unfinished(), ElementsAre(name));
  pipeline_ = std::make_unique<Pipeline>(collector_.get(), &symbolizer_, store_.get());
  pipeline_->ResumeUnfinished();
  ASSERT_TRUE(AwaitFinished(1));
  EXPECT_THAT(store_->Unfinished(), testing::IsEmpty());
  auto dump = store_->Get(name);
  ASSERT_TRUE(dump.has_value());
  EXPECT_EQ(dump->threads_size(), 2);
  EXPECT_EQ(dump->crash().signal_name(), "SIGSEGV");
  pipeline_.reset();
  store_.reset();
  for (const char* suffix : {"", "-wal", "-shm"}) unlink((std::string(file) + suffix).c_str());
}

TEST(CrashBacklog, LetsCapturesGoThatAreTooManyAndFinishesThemAllTheSame) {
  std::mutex mutex;
  std::condition_variable changed;
  bool go_on = false;
  int with = 0, without = 0;
  CrashBacklog backlog(1, [&](UnfinishedCrash crash) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return go_on; });
    ++(crash.capture == nullptr ? without : with);
    changed.notify_all();
  });
  auto large = [] {
    auto capture = FakeCapture(7, {{1}});
    std::vector<uint64_t> words(3u << 20);
    capture->threads[0].stack = StackCopy(0, 3u << 20, std::vector<uint64_t>((3u << 20) / 64, ~0ull), std::move(words));
    return capture;
  };
  EXPECT_TRUE(backlog.Add({"a", large()}));
  EXPECT_TRUE(backlog.Add({"b", large()}));
  EXPECT_FALSE(backlog.Add({"c", large()})) << "72 MiB";
  std::unique_lock lock(mutex);
  go_on = true;
  changed.notify_all();
  changed.wait_for(lock, std::chrono::seconds(20), [&] { return with + without == 3; });
  EXPECT_EQ(with, 2);
  EXPECT_EQ(without, 1);
}

TEST(CrashBacklog, CountsWhatRuntimesAndTheirReportsTake) {
  const auto big = [](auto fill) {
    auto capture = FakeCapture(7, {{kFakeBias}});
    fill(capture.get());
    return capture;
  };
  const auto roomy = [] {
    std::string text;
    text.reserve(CrashBacklog::kMaxBytes);
    text += "a";
    return text;
  };
  const std::vector<std::shared_ptr<Capture>> captures = {
      big([&](Capture* capture) { capture->managed.reports.emplace_back().text.reserve(CrashBacklog::kMaxBytes); }),
      big([&](Capture* capture) { capture->managed.tasks.emplace_back().created_by.reserve(CrashBacklog::kMaxBytes); }),
      big([&](Capture* capture) { capture->managed.task_stacks.emplace_back().frames.emplace_back().function = roomy(); }),
      big([&](Capture* capture) {
        capture->managed.threads[7].stacks.emplace_back().frames.emplace_back().file = roomy();
      }),
      big([&](Capture* capture) {
        capture->threads[0].traces.emplace_back().entries = std::make_shared<const std::string>(roomy());
      })};
  std::promise<void> go_on;
  CrashBacklog backlog(1, [gate = go_on.get_future().share()](UnfinishedCrash) { gate.wait(); });
  EXPECT_TRUE(backlog.Add({"first", FakeCapture(7, {{kFakeBias}})}));
  for (const auto& capture : captures) EXPECT_FALSE(backlog.Add({"big", capture}));
  go_on.set_value();
}

TEST(CrashBacklog, LeavesTheCpusToCrashesThatComeUntilTheStormIsOver) {
  std::promise<void> first_may_end;
  std::promise<int64_t> second_began_ns;
  int finished = 0;
  CrashBacklog backlog(1, [&](UnfinishedCrash) {
    if (++finished == 1) first_may_end.get_future().wait();
    if (finished == 2) second_began_ns.set_value(MonotonicNs());
  });
  int64_t last_added_ns = 0;
  for (int i = 0; i < 20; ++i) {
    last_added_ns = MonotonicNs();
    backlog.Add({"a", nullptr});
  }
  first_may_end.set_value();
  auto began_ns = second_began_ns.get_future();
  ASSERT_EQ(began_ns.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_GE(began_ns.get() - last_added_ns, 50 * kNsPerMs);
}

}  // namespace
}  // namespace stackd
