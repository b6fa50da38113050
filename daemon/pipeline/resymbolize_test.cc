// Stored dumps, unwound and named anew.
#include <thread>

#include "daemon/assemble/assemble.h"
#include "daemon/pipeline/testing/pipeline_fixture.h"
#include "daemon/store/raw_capture.h"

namespace stackd {
namespace {

using testing::HasSubstr;

using ResymbolizeTest = PipelineTest;

TEST_F(ResymbolizeTest, NamesAStoredDumpAnewAndLosesNothingThatWasKnown) {
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

TEST_F(ResymbolizeTest, NamesADumpOnceForCallsThatOverlap) {
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

TEST_F(ResymbolizeTest, NamesOneDumpAtATime) {
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

TEST_F(ResymbolizeTest, KeepsTheNamesOfFilesThatAreGone) {
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

TEST_F(ResymbolizeTest, FinishesADumpThatTheDaemonHadNoTimeFor) {
  const auto capture = FakeCapture(7, {{kFakeBias + 0x20}});
  const v1::Dump header = DumpHeader(*capture, "unfinished");
  ASSERT_TRUE(store_->PutRaw(header, SerializeRaw(*capture)));
  auto finished = pipeline_->Resymbolize(header.name(), MonotonicNs() + kNsPerSecond);
  ASSERT_TRUE(finished.has_value()) << finished.error().message;
  EXPECT_EQ((*finished)->state(), v1::Dump::COMPLETE);
  EXPECT_EQ(store_->Get(header.name())->threads_size(), 1);
}

TEST_F(ResymbolizeTest, SaysWhyADumpCannotBeNamedAnew) {
  EXPECT_EQ(pipeline_->Resymbolize("processes/7-100/dumps/x", MonotonicNs()).error().reason, "DUMP_NOT_FOUND");
  CaptureIs({{kFakeBias}});
  v1::Dump dump = **Create();
  dump.set_name("processes/7-100/dumps/without-raw");
  ASSERT_TRUE(store_->Put(dump));
  EXPECT_EQ(pipeline_->Resymbolize(dump.name(), MonotonicNs()).error().reason, "RAW_CAPTURE_GONE");
}

}  // namespace
}  // namespace stackd
