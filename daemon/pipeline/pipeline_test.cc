#include "daemon/pipeline/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <future>
#include <set>
#include <thread>

#include "daemon/assemble/assemble.h"
#include "daemon/base/clock.h"
#include "daemon/pipeline/dump_id.h"
#include "daemon/pipeline/crash_backlog.h"
#include "daemon/store/raw_capture.h"
#include "daemon/testing/fake_stages.h"

namespace stackd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class PipelineTest : public testing::Test {
 protected:
  PipelineTest() {
    ResetFakes();
    store_ = std::move(*DumpStore::Open({.file = ":memory:"}));
    pipeline_ = std::make_unique<Pipeline>(collector_.get(), &symbolizer_, store_.get());
  }

  void CaptureIs(const std::vector<std::vector<uint64_t>>& stacks) {
    Fakes().capture = [stacks](const CaptureRequest&) { return FakeCapture(7, stacks); };
  }

  Result<std::shared_ptr<const v1::Dump>> Create(uint32_t max_stack_bytes = 4096) {
    return pipeline_->CreateDump("7-100",
                                 {.deadline_ns = MonotonicNs() + kNsPerSecond, .max_stack_bytes = max_stack_bytes});
  }

  std::unique_ptr<Collector> collector_ = FakeCollector();
  Symbolizer symbolizer_{{}};
  std::unique_ptr<DumpStore> store_;
  std::unique_ptr<Pipeline> pipeline_;
};

TEST_F(PipelineTest, StoresWhatItAnswers) {
  CaptureIs({{kFakeBias + 0x20, kFakeBias + 0x31}, {}});
  auto dump = Create();
  ASSERT_TRUE(dump.has_value());
  EXPECT_TRUE((*dump)->stored());
  EXPECT_THAT((*dump)->name(), testing::MatchesRegex("processes/7-100/dumps/[0-9]{8}T[0-9]{9}Z-1"));
  ASSERT_EQ((*dump)->threads_size(), 2);
  EXPECT_FALSE((*dump)->threads(1).has_stack());
  auto stored = store_->Get((*dump)->name());
  ASSERT_TRUE(stored.has_value());
  EXPECT_EQ(stored->SerializeAsString(), (*dump)->SerializeAsString());
  EXPECT_TRUE(store_->GetRaw((*dump)->name()).has_value());
}

TEST_F(PipelineTest, LooksUpTheCallAndNotTheReturnAddress) {
  CaptureIs({{kFakeBias + 0x20, kFakeBias + 0x31}});
  auto dump = Create();
  ASSERT_TRUE(dump.has_value());
  const v1::Stack& stack = (*dump)->stacks(0);
  ASSERT_EQ(stack.frames_size(), 2);
  EXPECT_EQ(stack.frames(0).function(), "f20");
  EXPECT_EQ(stack.frames(1).function(), "f30");
}

TEST_F(PipelineTest, UnwindsEqualStacksIntoOneAndNamesEachAddressOnce) {
  std::vector<uint64_t> a{kFakeBias + 0x20, kFakeBias + 0x31}, b{kFakeBias + 0x40, kFakeBias + 0x31};
  CaptureIs({a, b, a, a, b});
  auto dump = Create();
  ASSERT_TRUE(dump.has_value());
  EXPECT_EQ((*dump)->stacks_size(), 2);
  ASSERT_EQ((*dump)->groups_size(), 2);
  EXPECT_EQ((*dump)->groups(0).thread_count(), 3);
  std::vector<uint64_t> asked;
  for (const AddressQuery& query : Fakes().symbolized) asked.push_back(query.svma);
  EXPECT_THAT(asked, testing::UnorderedElementsAre(0x20, 0x30, 0x40));
}

TEST_F(PipelineTest, SaysWhyAnAddressOutsideOfFilesHasNoName) {
  CaptureIs({{0x999999999}});
  auto dump = Create();
  ASSERT_TRUE(dump.has_value());
  EXPECT_THAT((*dump)->stacks(0).frames(0).unnamed_reason(), HasSubstr("no ELF file"));
}

TEST_F(PipelineTest, KeepsEachStackWithItsThreadWhenManyAreUnwoundInParallel) {
  std::vector<std::vector<uint64_t>> stacks;
  for (uint64_t i = 0; i < 3000; ++i) stacks.push_back({kFakeBias + 16 * i, kFakeBias + 0x31});
  CaptureIs(stacks);
  auto dump = Create();
  ASSERT_TRUE(dump.has_value());
  ASSERT_EQ((*dump)->threads_size(), 3000);
  for (int i = 0; i < 3000; ++i) {
    char address[32];
    snprintf(address, sizeof(address), "0x%llx", static_cast<unsigned long long>(kFakeBias) + 16 * i);
    EXPECT_EQ((*dump)->stacks((*dump)->threads(i).stack()).frames(0).address(), address);
  }
}

TEST_F(PipelineTest, MakesOneDumpForCallsThatOverlap) {
  Fakes().capture = [this](const CaptureRequest&) {
    while (pipeline_->Counters()["dumps_shared"] < 3) std::this_thread::yield();
    return FakeCapture(7, {{kFakeBias}});
  };
  std::mutex mutex;
  std::multiset<std::string> names;
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < 4; ++i) {
      callers.emplace_back([&] {
        auto dump = Create();
        std::lock_guard lock(mutex);
        names.insert(dump.has_value() ? (*dump)->name() : dump.error().message);
      });
    }
  }
  EXPECT_EQ(Fakes().captures, 1);
  EXPECT_EQ(names.count(*names.begin()), 4u);
  EXPECT_EQ(store_->dump_count(), 1);
}

TEST_F(PipelineTest, AHangHasADumpOfItsOwnThatSaysWhy) {
  Fakes().capture = [](const CaptureRequest& request) {
    while (Fakes().captures < 2) std::this_thread::yield();
    auto capture = FakeCapture(7, {{kFakeBias}});
    capture->trigger = request.trigger;
    capture->hang = request.hang;
    return capture;
  };
  std::jthread other([this] { Create(); });
  CaptureRequest request{.trigger = Trigger::kHang, .deadline_ns = MonotonicNs() + kNsPerSecond};
  request.hang = {.cause = HangCause::kDeadlock,
                  .explanation = "thread 7 waits for thread 8",
                  .tid = 7,
                  .heartbeat = "loop",
                  .duration_ns = 2'500'000'000,
                  .rule = "deadlock"};
  auto dump = pipeline_->CreateDump("7-100", request);
  other.join();
  ASSERT_TRUE(dump.has_value());
  EXPECT_EQ((*dump)->trigger(), v1::Dump::HANG);
  const v1::Hang& hang = (*dump)->hang();
  EXPECT_EQ(hang.cause(), v1::Hang::DEADLOCK);
  EXPECT_EQ(hang.explanation(), "thread worker (tid 7) waits for thread 8");
  EXPECT_EQ(hang.tid(), 7);
  EXPECT_EQ(hang.heartbeat(), "loop");
  EXPECT_EQ(hang.duration().seconds(), 2);
  EXPECT_EQ(hang.rule(), "deadlock");
  EXPECT_EQ(pipeline_->Counters()["dumps_hang"], 1);
}

TEST_F(PipelineTest, AnExceptionHasADumpOfItsOwnThatIsOfACrash) {
  Fakes().capture = [](const CaptureRequest& request) {
    while (Fakes().captures < 2) std::this_thread::yield();
    auto capture = FakeCapture(7, {{kFakeBias}});
    capture->trigger = request.trigger;
    capture->crash = request.exception;
    return capture;
  };
  std::jthread other([this] { Create(); });
  CaptureRequest request{
      .trigger = Trigger::kCrash, .deadline_ns = MonotonicNs() + 10 * kNsPerSecond, .max_stack_bytes = 4096};
  request.exception = CrashCapture{.tid = 7, .exception_type = "ValueError"};
  auto dump = pipeline_->CreateDump("7-100", request);
  other.join();
  ASSERT_TRUE(dump.has_value());
  EXPECT_EQ((*dump)->trigger(), v1::Dump::CRASH);
  EXPECT_EQ((*dump)->crash().exception_type(), "ValueError");
  EXPECT_EQ(pipeline_->Counters()["dumps_shared"], 0);
}

TEST_F(PipelineTest, HasItsRequestsSayWhichThreadsHaveNotRun) {
  std::map<int32_t, int64_t> asked_with;
  Fakes().capture = [&](const CaptureRequest& request) {
    asked_with = request.unmoved_since_ns;
    return FakeCapture(7, {{kFakeBias}});
  };
  pipeline_->BeforeCapture([](const std::string& id) { return std::map<int32_t, int64_t>{{7, id == "7-100" ? 5 : 0}}; });
  ASSERT_TRUE(Create().has_value());
  EXPECT_THAT(asked_with, testing::ElementsAre(std::pair(7, 5)));
}

TEST_F(PipelineTest, NamesTheFunctionsOfOneThreadAndStoresNothing) {
  int32_t asked = 0;
  Fakes().capture = [&](const CaptureRequest& request) {
    asked = request.only_tid;
    return FakeCapture(7, {{kFakeBias + 0x20, kFakeBias + 0x31, 0x999999999}});
  };
  auto functions = pipeline_->FunctionsOf("7-100", 7, MonotonicNs() + kNsPerSecond);
  ASSERT_TRUE(functions.has_value());
  EXPECT_THAT(*functions, testing::ElementsAre("f20", "f30", ""));
  EXPECT_EQ(asked, 7);
  EXPECT_EQ(store_->dump_count(), 0);
}

TEST_F(PipelineTest, DoesNotGiveAShallowDumpToWhoAskedForADeepOne) {
  Fakes().capture = [this](const CaptureRequest&) {
    while (Fakes().captures < 2) std::this_thread::yield();
    return FakeCapture(7, {{kFakeBias}});
  };
  std::jthread shallow([this] { Create(64); });
  Create(4096);
  shallow.join();
  EXPECT_EQ(Fakes().captures, 2);
}

TEST_F(PipelineTest, AsksTheCallThatCapturesWhetherItMayAndNotThoseThatShare) {
  Fakes().capture = [this](const CaptureRequest&) {
    while (pipeline_->Counters()["dumps_shared"] < 3) std::this_thread::yield();
    return FakeCapture(7, {{kFakeBias}});
  };
  std::atomic<int> asked = 0;
  const auto create = [&] {
    const CaptureRequest request{.deadline_ns = MonotonicNs() + 10 * kNsPerSecond};
    const auto may_begin = [&]() -> Result<void> {
      ++asked;
      return {};
    };
    EXPECT_TRUE(pipeline_->CreateDump("7-100", request, may_begin).has_value());
  };
  {
    std::vector<std::jthread> calls;
    for (int i = 0; i < 4; ++i) calls.emplace_back(create);
  }
  EXPECT_EQ(asked, 1);
  // No call is under way any more, and calls that ended are none to share with.
  Fakes().capture = [](const CaptureRequest&) { return FakeCapture(7, {{kFakeBias}}); };
  create();
  EXPECT_EQ(asked, 2);
}

TEST_F(PipelineTest, CapturesNothingForACallThatMayNot) {
  CaptureIs({{kFakeBias}});
  const CaptureRequest request{.deadline_ns = MonotonicNs() + kNsPerSecond, .max_stack_bytes = 4096};
  const auto refused = [] { return Result<void>(Error(Code::kResourceExhausted, "too often")); };
  EXPECT_EQ(pipeline_->CreateDump("7-100", request, refused).error().message, "too often");
  EXPECT_EQ(Fakes().captures, 0);
  EXPECT_TRUE(Create().has_value()) << "another one may";
}

TEST_F(PipelineTest, LetsAnImpatientCallerGoWhileTheDumpIsMade) {
  std::atomic<bool> go_on = false;
  Fakes().capture = [&](const CaptureRequest&) {
    while (!go_on) std::this_thread::yield();
    return FakeCapture(7, {{kFakeBias}});
  };
  std::jthread patient([this] { Create(); });
  while (Fakes().captures == 0) std::this_thread::yield();
  auto dump = pipeline_->CreateDump("7-100", {.deadline_ns = MonotonicNs() + kNsPerMs, .max_stack_bytes = 4096});
  go_on = true;
  ASSERT_FALSE(dump.has_value());
  EXPECT_EQ(dump.error().code, Code::kDeadlineExceeded);
}

TEST_F(PipelineTest, DoesNotGiveAPartialDumpOfAHastyCallToAPatientOne) {
  Fakes().capture = [this](const CaptureRequest&) {
    while (pipeline_->Counters()["dumps_shared"] < 1) std::this_thread::yield();
    auto capture = FakeCapture(7, {{kFakeBias}});
    capture->partial = Fakes().captures == 1;
    return capture;
  };
  std::jthread hasty([this] { Create(); });
  while (Fakes().captures == 0) std::this_thread::yield();
  auto dump = pipeline_->CreateDump("7-100", {.deadline_ns = MonotonicNs() + 10 * kNsPerSecond, .max_stack_bytes = 4096});
  ASSERT_TRUE(dump.has_value());
  EXPECT_EQ((*dump)->state(), v1::Dump::COMPLETE);
}

TEST_F(PipelineTest, LeavesTimeForNamesWhenThreadsDoNotAnswer) {
  int64_t capture_deadline_ns = 0;
  Fakes().capture = [&](const CaptureRequest& request) {
    capture_deadline_ns = request.deadline_ns;
    return FakeCapture(7, {{kFakeBias}});
  };
  int64_t deadline_ns = MonotonicNs() + kNsPerSecond;
  ASSERT_TRUE(pipeline_->CreateDump("7-100", {.deadline_ns = deadline_ns}).has_value());
  EXPECT_LT(capture_deadline_ns, deadline_ns - kNsPerSecond / 10);
  EXPECT_GT(capture_deadline_ns, deadline_ns - kNsPerSecond / 2);
}

TEST_F(PipelineTest, TellsEachWatcherUntilItLetsGo) {
  CaptureIs({{kFakeBias}});
  std::vector<std::string> seen;
  auto handle = pipeline_->Watch([&](std::shared_ptr<const v1::Dump> dump) { seen.push_back(dump->name()); });
  auto first = Create();
  handle.reset();
  Create();
  EXPECT_THAT(seen, ElementsAre((*first)->name()));
}

TEST_F(PipelineTest, LetsAWatcherLetGoFromWithin) {
  CaptureIs({{kFakeBias}});
  int calls = 0;
  std::shared_ptr<void> handle;
  handle = pipeline_->Watch([&](std::shared_ptr<const v1::Dump>) {
    ++calls;
    handle.reset();
  });
  Create();
  Create();
  EXPECT_EQ(calls, 1);
}

TEST_F(PipelineTest, AnswersADumpThatTheStoreDidNotTake) {
  // Not a name that the store accepts.
  Fakes().capture = [](const CaptureRequest&) {
    auto capture = FakeCapture(7, {{kFakeBias}});
    capture->process.id = "../7";
    return capture;
  };
  int told = 0;
  auto handle = pipeline_->Watch([&](std::shared_ptr<const v1::Dump>) { ++told; });
  auto dump = Create();
  ASSERT_TRUE(dump.has_value());
  EXPECT_FALSE((*dump)->stored());
  EXPECT_THAT((*dump)->notes(), testing::Contains(HasSubstr("not stored")));
  EXPECT_EQ(told, 0);
  EXPECT_EQ(pipeline_->Counters()["dumps_unstored"], 1);
}

TEST_F(PipelineTest, FailsAsTheCaptureDoes) {
  Fakes().capture = [](const CaptureRequest&) -> Result<std::shared_ptr<Capture>> {
    return Error(Code::kNotFound, "gone");
  };
  auto dump = Create();
  ASSERT_FALSE(dump.has_value());
  EXPECT_EQ(dump.error().message, "gone");
  EXPECT_EQ(pipeline_->Counters()["dumps_failed"], 1);
  const auto& captures = pipeline_->Measures().captures[static_cast<size_t>(Trigger::kRequest)];
  EXPECT_EQ(captures[PipelineMeasures::kFailed], 1);
  EXPECT_EQ(captures[PipelineMeasures::kComplete] + captures[PipelineMeasures::kPartial], 0);
}

TEST_F(PipelineTest, NamesAStoredDumpAnewAndLosesNothingThatWasKnown) {
  CaptureIs({{kFakeBias + 0x20, kFakeBias + 0x31}, {}});
  auto made = Create();
  ASSERT_TRUE(made.has_value());
  const std::string name = (*made)->name();
  // As if the names had been worse.
  v1::Dump poorer = **made;
  for (v1::Stack& stack : *poorer.mutable_stacks()) stack.mutable_frames(0)->clear_function();
  ASSERT_TRUE(store_->Put(poorer));
  int told = 0;
  auto handle = pipeline_->Watch([&](std::shared_ptr<const v1::Dump>) { ++told; });

  auto anew = pipeline_->Resymbolize(name, MonotonicNs() + kNsPerSecond);
  ASSERT_TRUE(anew.has_value()) << anew.error().message;
  EXPECT_EQ((*anew)->name(), name);
  EXPECT_EQ((*anew)->create_time().nanos(), (*made)->create_time().nanos());
  ASSERT_EQ((*anew)->stacks_size(), 1);
  EXPECT_EQ((*anew)->stacks(0).frames(0).function(), "f20");
  EXPECT_EQ((*anew)->stacks(0).frames(1).function(), "f30");
  EXPECT_EQ((*anew)->groups(0).fingerprint(), (*made)->groups(0).fingerprint());
  EXPECT_THAT((*anew)->notes(), testing::Contains(HasSubstr("named anew at")));
  EXPECT_EQ(store_->Get(name)->SerializeAsString(), (*anew)->SerializeAsString());
  EXPECT_EQ(store_->dump_count(), 1);
  EXPECT_EQ(told, 0) << "it is no new dump";
  EXPECT_TRUE(pipeline_->Resymbolize(name, MonotonicNs() + kNsPerSecond).has_value()) << "and once more";
}

TEST_F(PipelineTest, NamesADumpOnceForCallsThatOverlap) {
  CaptureIs({{kFakeBias + 0x20}});
  const std::string name = (*Create())->name();
  std::atomic<int> asked = 0;
  const auto may_begin = [&]() -> Result<void> {
    ++asked;
    return {};
  };
  std::shared_ptr<const v1::Dump> anew[3];
  {
    // The symbolizer waits for it.
    std::unique_lock lock(Fakes().mutex);
    std::vector<std::jthread> calls;
    for (auto& one : anew) {
      calls.emplace_back([&] { one = *pipeline_->Resymbolize(name, MonotonicNs() + 10 * kNsPerSecond, may_begin); });
    }
    while (pipeline_->Counters()["dumps_shared"] < 2) std::this_thread::yield();
    lock.unlock();
  }
  EXPECT_EQ(anew[0], anew[1]);
  EXPECT_EQ(anew[0], anew[2]);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(pipeline_->Counters()["dumps_named_anew"], 1);
}

TEST_F(PipelineTest, NamesOneDumpAtATime) {
  CaptureIs({{kFakeBias + 0x20}});
  const std::string names[] = {(*Create())->name(), (*Create())->name()};
  std::atomic<int> named = 0, late = 0;
  const int64_t begin_ns = MonotonicNs();
  {
    std::unique_lock lock(Fakes().mutex);
    std::vector<std::jthread> calls;
    for (const std::string& name : names) {
      calls.emplace_back([&] {
        const auto anew = pipeline_->Resymbolize(name, begin_ns + kNsPerSecond / 2);
        if (anew) ++named;
        if (!anew && anew.error().code == Code::kDeadlineExceeded) ++late;
      });
    }
    while (late == 0 && MonotonicNs() < begin_ns + 20 * kNsPerSecond) std::this_thread::yield();
    lock.unlock();
  }
  EXPECT_EQ(late, 1);
  EXPECT_EQ(named, 1);
}

TEST_F(PipelineTest, KeepsTheNamesOfFilesThatAreGone) {
  CaptureIs({{kFakeBias + 0x20, kFakeBias + 0x31}});
  auto made = Create();
  ASSERT_TRUE(made.has_value());
  // Another daemon, which never saw the process. The stages in front of it name nothing.
  Fakes().unnamed = true;
  Pipeline later(collector_.get(), &symbolizer_, store_.get());
  auto anew = later.Resymbolize((*made)->name(), MonotonicNs() + kNsPerSecond);
  ASSERT_TRUE(anew.has_value()) << anew.error().message;
  for (int i = 0; i < 2; ++i) {
    const v1::Frame& frame = (*anew)->stacks(0).frames(i);
    EXPECT_EQ(frame.SerializeAsString(), (*made)->stacks(0).frames(i).SerializeAsString());
  }
  ASSERT_EQ((*anew)->modules_size(), 1);
  EXPECT_EQ((*anew)->modules(0).build_id(), (*made)->modules(0).build_id());
}

TEST_F(PipelineTest, FinishesADumpThatTheDaemonHadNoTimeFor) {
  const auto capture = FakeCapture(7, {{kFakeBias + 0x20}});
  const v1::Dump header = DumpHeader(*capture, "unfinished");
  ASSERT_TRUE(store_->PutRaw(header, SerializeRaw(*capture)));
  auto finished = pipeline_->Resymbolize(header.name(), MonotonicNs() + kNsPerSecond);
  ASSERT_TRUE(finished.has_value()) << finished.error().message;
  EXPECT_EQ((*finished)->state(), v1::Dump::COMPLETE);
  EXPECT_EQ(store_->Get(header.name())->threads_size(), 1);
}

TEST_F(PipelineTest, SaysWhyADumpCannotBeNamedAnew) {
  EXPECT_EQ(pipeline_->Resymbolize("processes/7-100/dumps/x", MonotonicNs()).error().reason, "DUMP_NOT_FOUND");
  CaptureIs({{kFakeBias}});
  v1::Dump dump = **Create();
  dump.set_name("processes/7-100/dumps/without-raw");
  ASSERT_TRUE(store_->Put(dump));
  EXPECT_EQ(pipeline_->Resymbolize(dump.name(), MonotonicNs()).error().reason, "RAW_CAPTURE_GONE");
}

TEST_F(PipelineTest, CountsWhatItDid) {
  CaptureIs({{kFakeBias + 0x20}, {kFakeBias + 0x20}, {0x999999999}});
  ASSERT_TRUE(Create().has_value());
  auto counters = pipeline_->Counters();
  EXPECT_EQ(counters["dumps_request"], 1);
  EXPECT_EQ(counters["stacks_unwound"], 3);
  EXPECT_EQ(counters["frames_unnamed"], 1);
  EXPECT_EQ(counters["dumps_running"], 0);
}

// --- Crashes ---

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
  pipeline_->FinishWhatWasLeft();
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

TEST(Finisher, LetsCapturesGoThatAreTooManyAndFinishesThemAllTheSame) {
  std::mutex mutex;
  std::condition_variable changed;
  bool go_on = false;
  int with = 0, without = 0;
  Finisher finisher(1, [&](UnfinishedCrash crash) {
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
  EXPECT_TRUE(finisher.Add({"a", large()}));
  EXPECT_TRUE(finisher.Add({"b", large()}));
  EXPECT_FALSE(finisher.Add({"c", large()})) << "72 MiB";
  std::unique_lock lock(mutex);
  go_on = true;
  changed.notify_all();
  changed.wait_for(lock, std::chrono::seconds(20), [&] { return with + without == 3; });
  EXPECT_EQ(with, 2);
  EXPECT_EQ(without, 1);
}

TEST(Finisher, CountsWhatRuntimesAndTheirReportsTake) {
  const auto big = [](auto fill) {
    auto capture = FakeCapture(7, {{kFakeBias}});
    fill(capture.get());
    return capture;
  };
  const auto roomy = [] {
    std::string text;
    text.reserve(Finisher::kMaxBytes);
    text += "a";
    return text;
  };
  const std::vector<std::shared_ptr<Capture>> captures = {
      big([&](Capture* capture) { capture->managed.reports.emplace_back().text.reserve(Finisher::kMaxBytes); }),
      big([&](Capture* capture) { capture->managed.tasks.emplace_back().created_by.reserve(Finisher::kMaxBytes); }),
      big([&](Capture* capture) { capture->managed.task_stacks.emplace_back().frames.emplace_back().function = roomy(); }),
      big([&](Capture* capture) {
        capture->managed.threads[7].stacks.emplace_back().frames.emplace_back().file = roomy();
      }),
      big([&](Capture* capture) {
        capture->threads[0].traces.emplace_back().entries = std::make_shared<const std::string>(roomy());
      })};
  std::promise<void> go_on;
  Finisher finisher(1, [gate = go_on.get_future().share()](UnfinishedCrash) { gate.wait(); });
  EXPECT_TRUE(finisher.Add({"first", FakeCapture(7, {{kFakeBias}})}));
  for (const auto& capture : captures) EXPECT_FALSE(finisher.Add({"big", capture}));
  go_on.set_value();
}

TEST(Finisher, LeavesTheCpusToCrashesThatComeUntilTheStormIsOver) {
  std::promise<void> first_may_end;
  std::promise<int64_t> second_began_ns;
  int finished = 0;
  Finisher finisher(1, [&](UnfinishedCrash) {
    if (++finished == 1) first_may_end.get_future().wait();
    if (finished == 2) second_began_ns.set_value(MonotonicNs());
  });
  int64_t last_added_ns = 0;
  for (int i = 0; i < 20; ++i) {
    last_added_ns = MonotonicNs();
    finisher.Add({"a", nullptr});
  }
  first_may_end.set_value();
  auto began_ns = second_began_ns.get_future();
  ASSERT_EQ(began_ns.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_GE(began_ns.get() - last_added_ns, 50 * kNsPerMs);
}

TEST(DumpIds, SortByTimeAndNeverRepeatEvenIfTheClockGoesBack) {
  DumpIds ids;
  std::vector<std::string> made;
  for (int64_t ms : {1000, 1000, 1000, 2000, 500, 2001}) made.push_back(ids.Next(ms * kNsPerMs));
  EXPECT_EQ(made[0], "19700101T000001000Z-1");
  EXPECT_EQ(made[4], "19700101T000002000Z-2");
  EXPECT_TRUE(std::is_sorted(made.begin(), made.end()));
  EXPECT_EQ(std::set<std::string>(made.begin(), made.end()).size(), made.size());
}

}  // namespace
}  // namespace stackd
