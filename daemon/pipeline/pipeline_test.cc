#include "daemon/pipeline/pipeline.h"

#include <algorithm>
#include <set>
#include <thread>

#include "daemon/pipeline/dump_id.h"
#include "daemon/pipeline/testing/pipeline_fixture.h"

namespace stackd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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

TEST_F(PipelineTest, NamesCodeOutsideOfFilesByAPerfMapThatItReadsWhereItIsNeeded) {
  Fakes().perf_map = "10 20 made_code\nwhat\n";
  CaptureIs({{0x18}, {0x50}});
  const auto dump = Create();
  ASSERT_TRUE(dump.has_value());
  EXPECT_EQ((*dump)->stacks(0).frames(0).function(), "made_code");
  EXPECT_EQ((*dump)->stacks(1).frames(0).function(), "");
  EXPECT_THAT((*dump)->notes(), testing::Contains(testing::HasSubstr("1 lines of its perf map name no code")));
  EXPECT_EQ(Fakes().perf_maps_read, 1);
  CaptureIs({{kFakeBias + 0x20}});
  ASSERT_TRUE(Create().has_value());
  EXPECT_EQ(Fakes().perf_maps_read, 1);
}

TEST_F(PipelineTest, SaysThatAPerfMapWasNotReadInTime) {
  Fakes().perf_map_is_late = true;
  CaptureIs({{0x18}});
  const auto dump = Create();
  ASSERT_TRUE(dump.has_value());
  EXPECT_THAT((*dump)->notes(), testing::Contains(testing::HasSubstr("its perf map was not read in time")));
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
  std::map<int32_t, ThreadPast> asked_with;
  Fakes().capture = [&](const CaptureRequest& request) {
    asked_with = request.past;
    return FakeCapture(7, {{kFakeBias}});
  };
  pipeline_->BeforeCapture([](const std::string& id) {
    return std::map<int32_t, ThreadPast>{{7, {.unmoved_since_ns = id == "7-100" ? 5 : 0}}};
  });
  ASSERT_TRUE(Create().has_value());
  EXPECT_THAT(asked_with, testing::ElementsAre(std::pair(7, ThreadPast{.unmoved_since_ns = 5})));
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

TEST_F(PipelineTest, ASampleIsAnsweredAndKeptNowhere) {
  CaptureIs({{kFakeBias + 0x20}});
  int told = 0;
  const auto watching = pipeline_->Watch([&](std::shared_ptr<const v1::Dump>) { ++told; });
  const auto sample = pipeline_->CreateDump(
      "7-100", {.deadline_ns = MonotonicNs() + kNsPerSecond, .quiet = Quiet::kOnly, .is_sample = true});
  ASSERT_TRUE(sample.has_value());
  EXPECT_EQ((*sample)->groups(0).thread_count(), 1);
  EXPECT_EQ((*sample)->name(), "");
  EXPECT_FALSE((*sample)->stored());
  EXPECT_EQ(store_->dump_count(), 0);
  EXPECT_THAT(store_->Unfinished(), testing::IsEmpty());
  EXPECT_EQ(told, 0);
  EXPECT_EQ(pipeline_->Counters()["samples"], 1);
  EXPECT_EQ(pipeline_->Counters()["dumps_request"], 0);
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

TEST_F(PipelineTest, CountsWhatItDid) {
  CaptureIs({{kFakeBias + 0x20}, {kFakeBias + 0x20}, {0x999999999}});
  ASSERT_TRUE(Create().has_value());
  auto counters = pipeline_->Counters();
  EXPECT_EQ(counters["dumps_request"], 1);
  EXPECT_EQ(counters["stacks_unwound"], 3);
  EXPECT_EQ(counters["frames_unnamed"], 1);
  EXPECT_EQ(counters["dumps_running"], 0);
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
