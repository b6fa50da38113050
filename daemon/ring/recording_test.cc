#include "daemon/ring/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

namespace stackd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

ThreadRecord Record(uint32_t tid, size_t table_bytes) {
  ThreadRecord record;
  record.seq = 1;
  record.tid = tid;
  // Room that is never touched counts, too.
  std::string entries;
  entries.reserve(table_bytes);
  record.managed.emplace_back().entries = std::make_shared<const std::string>(std::move(entries));
  return record;
}

ThreadRecord ReadByHelper() {
  ThreadRecord record;
  record.seq = 1;
  record.tid = 7;
  record.flags = STACKD_THREAD_BY_HELPER;
  return record;
}
StatusRecord Blocked() {
  StatusRecord record{};
  record.seq = 1;
  record.tid = 7;
  record.status = STACKD_STATUS_SIGNAL_BLOCKED;
  return record;
}

TEST(RecordingTest, AThreadThatWasReadWhileItSleptIsCapturedUnlessAStatusSaysWhy) {
  CollectorCounters counters;
  Recording asleep(1, &counters), before(1, &counters), after(1, &counters);
  asleep.OnThread(ReadByHelper());
  before.OnStatus(Blocked());
  before.OnThread(ReadByHelper());
  after.OnThread(ReadByHelper());
  after.OnStatus(Blocked());
  EXPECT_EQ(asleep.TakeThreads().at(0).status, ThreadStatus::kCaptured);
  EXPECT_EQ(before.TakeThreads().at(0).status, ThreadStatus::kSignalBlocked);
  EXPECT_EQ(after.TakeThreads().at(0).status, ThreadStatus::kSignalBlocked);
}

TEST(RecordingTest, OfAThreadThatWasReadWhileItSleptFewRegistersAreKnown) {
  CollectorCounters counters;
  Recording without_rbp(1, &counters), with_rbp(1, &counters), by_signal(1, &counters);
  without_rbp.OnThread(ReadByHelper());
  ThreadRecord record = ReadByHelper();
  record.registers[Registers::kRbp] = 0x7ff0;
  with_rbp.OnThread(record);
  record.flags = STACKD_THREAD_OF_AGENT;
  by_signal.OnThread(record);
  constexpr uint32_t kAlways = 1u << Registers::kRsp | 1u << Registers::kRip;
  EXPECT_EQ(without_rbp.TakeThreads().at(0).registers.known, kAlways);
  const ThreadCapture asleep = with_rbp.TakeThreads().at(0), signalled = by_signal.TakeThreads().at(0);
  EXPECT_EQ(asleep.registers.known, kAlways | 1u << Registers::kRbp);
  EXPECT_TRUE(asleep.read_asleep);
  EXPECT_FALSE(asleep.is_agent);
  EXPECT_EQ(signalled.registers.known, Registers::kAll);
  EXPECT_FALSE(signalled.read_asleep);
  EXPECT_TRUE(signalled.is_agent);
}

TEST(RecordingTest, WhatRuntimesKnowOfThreadsIsBounded) {
  CollectorCounters counters;
  Recording recording(1, &counters);
  for (uint32_t tid = 1; tid <= 4; ++tid) recording.OnThread(Record(tid, 100u << 20));
  const std::vector<ThreadCapture> threads = recording.TakeThreads();
  ASSERT_THAT(threads, SizeIs(4));
  EXPECT_THAT(threads[1].traces, SizeIs(1));
  EXPECT_THAT(threads[2].traces, IsEmpty());
  EXPECT_TRUE(threads[3].has_stack) << "its native stack takes little";
  std::vector<std::string> notes;
  recording.AddNotes(&notes);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("of 2 threads was dropped")));
}

}  // namespace
}  // namespace stackd
