#include "daemon/managed/managed_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <semaphore>

#include "daemon/base/clock.h"
#include "daemon/process/memory_reader.h"

namespace stackd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::shared_ptr<Capture> CaptureWithPython() {
  ManagedTrace trace;
  trace.runtime = STACKD_RUNTIME_CPYTHON;
  trace.status = STACKD_WALK_WHOLE;
  trace.version = 0x030b07f0;
  trace.frames.push_back({.anchor_avma = 0x1000, .key = 1});
  auto capture = std::make_shared<Capture>();
  capture->threads.emplace_back().tid = 7;
  capture->threads.back().traces.push_back(std::move(trace));
  return capture;
}

TEST(ManagedReader, LetsGoOfTracesThatNobodyLooksAtAnyMore) {
  const auto capture = CaptureWithPython();
  ManagedReader().Read(MonotonicNs() + 20 * kNsPerSecond, capture);
  EXPECT_THAT(capture->managed.threads.at(7).stacks, SizeIs(1));
  EXPECT_THAT(capture->threads[0].traces, IsEmpty());
  EXPECT_THAT(capture->notes, IsEmpty());
}

TEST(ManagedReader, DecodesWhatTheAgentWroteWhenMemoryCouldNotBeReadInTime) {
  const auto capture = CaptureWithPython();
  const auto memory = std::make_shared<MemoryReader>(std::make_shared<ProcessFiles>());
  // Readers that hang take all threads of `memory`.
  struct Gate {
    std::counting_semaphore<> opened{0};
    std::counting_semaphore<> passed{0};
  };
  const auto gate = std::make_shared<Gate>();
  int hanging = 0;
  const auto hang = [gate](const ProcessFiles&) {
    gate->opened.acquire();
    gate->passed.release();
  };
  for (; hanging < 4; ++hanging) EXPECT_FALSE(memory->Run(MonotonicNs(), hang));
  capture->memory = memory;
  ManagedReader().Read(MonotonicNs(), capture);
  gate->opened.release(hanging);
  EXPECT_THAT(capture->managed.threads.at(7).stacks, SizeIs(1));
  EXPECT_THAT(capture->notes, ElementsAre(HasSubstr("could not be read in time")));
  EXPECT_THAT(capture->threads[0].traces, SizeIs(1)) << "a reader that is late looks at them";
  for (; hanging > 0; --hanging) gate->passed.acquire();
}

TEST(ManagedReader, LeavesReportsToReadersAlone) {
  const auto capture = CaptureWithPython();
  capture->crash.emplace().tid = 7;
  capture->managed.reports.push_back({Language::kGo, "Go traceback", "panic: secret\n\ngoroutine 1 [running]:\n"});
  ManagedReader().Read(MonotonicNs() + 20 * kNsPerSecond, capture);
  ASSERT_THAT(capture->managed.reports, SizeIs(1));
  EXPECT_THAT(capture->managed.reports[0].text, testing::Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace stackd
