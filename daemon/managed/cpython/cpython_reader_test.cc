#include "daemon/managed/cpython/cpython_reader.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

namespace stackd {
namespace {

constexpr uint64_t kVersion = 0x030c01f0;

ManagedTrace Trace(int32_t status, size_t frames) {
  ManagedTrace trace{.runtime = STACKD_RUNTIME_CPYTHON, .status = status, .version = kVersion, .frames = {}, .symbols = {}};
  trace.instance_avma = 0x1000;
  trace.frames.resize(frames);
  return trace;
}

ThreadCapture Thread(int32_t tid, std::vector<ManagedTrace> traces) {
  ThreadCapture thread;
  thread.tid = tid;
  thread.traces = std::move(traces);
  return thread;
}

ManagedFacts Read(std::vector<ThreadCapture> threads) {
  Capture capture;
  capture.threads = std::move(threads);
  ManagedFacts facts;
  CpythonReader().Read({capture, nullptr, std::numeric_limits<int64_t>::max()}, &facts);
  return facts;
}

TEST(CpythonReader, AProcessWithoutPythonHasNothingOfIt) {
  ManagedTrace other = Trace(STACKD_WALK_WHOLE, 3);
  other.runtime = STACKD_RUNTIME_V8;
  const ManagedFacts facts = Read({Thread(7, {}), Thread(8, {other})});
  EXPECT_TRUE(facts.runtimes.empty());
  EXPECT_TRUE(facts.threads.empty());
}

TEST(CpythonReader, AVersionThatIsNotKnownIsNamedAndSaidToBeUnknown) {
  ManagedTrace trace = Trace(STACKD_WALK_UNKNOWN_VERSION, 0);
  trace.version = 0x030f00f0;
  const ManagedFacts facts = Read({Thread(7, {trace}), Thread(8, {trace})});
  ASSERT_EQ(facts.runtimes.size(), 1u);
  EXPECT_EQ(facts.runtimes[0].name, "CPython 3.15.0");
  EXPECT_NE(facts.runtimes[0].problem, "");
  EXPECT_TRUE(facts.threads.empty());
}

TEST(CpythonReader, ThatNothingOfAProcessCanBeReadIsSaidOfTheInterpreter) {
  ManagedTrace blind = Trace(STACKD_WALK_UNREADABLE, 0);
  blind.instance_avma = 0;
  const ManagedFacts facts = Read({Thread(7, {blind}), Thread(8, {Trace(STACKD_WALK_WHOLE, 2)})});
  ASSERT_EQ(facts.runtimes.size(), 1u);
  EXPECT_NE(facts.runtimes[0].problem.find("seccomp"), std::string::npos);
  EXPECT_FALSE(facts.threads.contains(7));
  EXPECT_EQ(facts.threads.at(8).stacks[0].frames.size(), 2u);
}

TEST(CpythonReader, WhatIsMissingOfAStackIsSaidWithIt) {
  const ManagedFacts facts =
      Read({Thread(7, {Trace(STACKD_WALK_WHOLE, 2), Trace(STACKD_WALK_LIMIT, 0)}), Thread(8, {Trace(STACKD_WALK_WHOLE, 2)}),
            Thread(9, {Trace(STACKD_WALK_UNREADABLE, 0)})});
  ASSERT_EQ(facts.runtimes.size(), 1u);
  EXPECT_EQ(facts.runtimes[0].problem, "");
  ASSERT_EQ(facts.threads.at(7).stacks.size(), 1u);
  EXPECT_EQ(facts.threads.at(7).stacks[0].frames.size(), 2u);
  EXPECT_NE(facts.threads.at(7).stacks[0].problem, "");
  EXPECT_EQ(facts.threads.at(8).stacks[0].problem, "");
  EXPECT_NE(facts.threads.at(9).stacks[0].problem, "");
}

TEST(CpythonReader, TheThreadThatHadTheLockIsMarked) {
  ManagedTrace trace = Trace(STACKD_WALK_WHOLE, 1);
  trace.flags = STACKD_MANAGED_HOLDS_GIL;
  const ManagedFacts facts = Read({Thread(7, {trace}), Thread(8, {Trace(STACKD_WALK_WHOLE, 1)})});
  EXPECT_TRUE(facts.threads.at(7).holds_gil);
  EXPECT_FALSE(facts.threads.at(8).holds_gil);
}

}  // namespace
}  // namespace stackd
