#include "daemon/managed/php/php_reader.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stackd/php_trace.h"

namespace stackd {
namespace {

using std::string_view_literals::operator""sv;

ManagedTrace Trace(int32_t status = STACKD_WALK_WHOLE) {
  ManagedTrace trace;
  trace.runtime = STACKD_RUNTIME_PHP;
  trace.version = 80236;
  trace.status = status;
  trace.instance_avma = 0x1000;
  return trace;
}

ManagedTraceFrame Frame(uint64_t key, int64_t line, uint16_t flags = 0) {
  ManagedTraceFrame frame;
  frame.flags = flags;
  frame.key = key;
  frame.position = line;
  return frame;
}

ManagedSymbol Symbol(uint64_t key, std::string_view function, std::string_view class_name = "", uint32_t kind = 0) {
  ManagedSymbol symbol;
  symbol.key = key;
  symbol.function = function;
  symbol.table = class_name;
  symbol.table_format = kind;
  symbol.file = "/srv/shop.php";
  return symbol;
}

ManagedFacts Read(std::vector<ManagedTrace> traces) {
  Capture capture;
  capture.threads.emplace_back().tid = 7;
  capture.threads.back().traces = std::move(traces);
  ManagedFacts facts;
  PhpReader().Read({capture, nullptr, std::numeric_limits<int64_t>::max()}, &facts);
  return facts;
}

TEST(PhpReader, FramesHaveClassesFilesLinesAndTheInterpretersFunction) {
  ManagedTrace trace = Trace();
  trace.frames = {Frame(1, 0), Frame(2, 12), Frame(0, 0, STACKD_MANAGED_BOUNDARY), Frame(3, 3), Frame(9, 4)};
  trace.symbols = {Symbol(1, "sleep"), Symbol(2, "pay", "Shop"), Symbol(3, "")};
  const ManagedFacts facts = Read({trace});
  ASSERT_EQ(facts.threads.at(7).stacks.size(), 1u);
  const ManagedStack& stack = facts.threads.at(7).stacks[0];
  EXPECT_EQ(stack.language, Language::kPhp);
  EXPECT_EQ(stack.interpreter_function, "execute_ex");
  EXPECT_EQ(stack.problem, "");
  ASSERT_EQ(stack.frames.size(), 5u);
  EXPECT_EQ(stack.frames[0].function, "sleep");
  EXPECT_EQ(stack.frames[1].function, "Shop::pay");
  EXPECT_EQ(stack.frames[1].file, "/srv/shop.php");
  EXPECT_EQ(stack.frames[1].line, 12);
  EXPECT_TRUE(stack.frames[2].boundary);
  EXPECT_EQ(stack.frames[3].function, "{main}");
  EXPECT_FALSE(stack.frames[4].function.empty()) << "a frame whose symbol was lost is a frame";
  ASSERT_EQ(facts.runtimes.size(), 1u);
  EXPECT_EQ(facts.runtimes[0].name, "PHP 8.2.36");
  EXPECT_EQ(facts.runtimes[0].problem, "");
}

TEST(PhpReader, WhatHasNoNameIsNamedByWhatItIs) {
  ManagedTrace trace = Trace();
  trace.frames = {Frame(1, 1), Frame(2, 1), Frame(3, 1), Frame(4, 1)};
  trace.symbols = {Symbol(1, "", "", STACKD_PHP_EVALUATED), Symbol(2, "", "", STACKD_PHP_INCLUDED),
                   Symbol(3, "run", "class@anonymous\0/srv/shop.php:3$0"sv), Symbol(4, "caf\xe9")};
  const auto frames = Read({trace}).threads.at(7).stacks.at(0).frames;
  EXPECT_EQ(frames[0].function, "{eval}");
  EXPECT_EQ(frames[1].function, "{include}");
  EXPECT_EQ(frames[2].function, "class@anonymous::run");
  EXPECT_EQ(frames[3].function, "caf?") << "not UTF-8";
}

TEST(PhpReader, AWalkThatEndedEarlySaysSo) {
  ManagedTrace trace = Trace();
  trace.frames = {Frame(1, 1)};
  for (int32_t status : {STACKD_WALK_LIMIT, STACKD_WALK_UNREADABLE, STACKD_WALK_BAD_LAYOUT}) {
    const ManagedFacts facts = Read({trace, Trace(status)});
    EXPECT_EQ(facts.threads.at(7).stacks.at(0).frames.size(), 1u);
    EXPECT_NE(facts.threads.at(7).stacks.at(0).problem, "");
    EXPECT_EQ(facts.runtimes.at(0).problem, "") << "that is of this thread alone";
  }
}

TEST(PhpReader, AVersionThatNobodyKnowsIsSaidOfTheRuntime) {
  const ManagedFacts facts = Read({Trace(STACKD_WALK_UNKNOWN_VERSION)});
  EXPECT_NE(facts.runtimes.at(0).problem, "");
  EXPECT_TRUE(facts.threads.empty());
  ManagedTrace blind = Trace(STACKD_WALK_UNREADABLE);
  blind.instance_avma = 0;
  EXPECT_NE(Read({blind}).runtimes.at(0).problem.find("seccomp"), std::string::npos);
}

TEST(PhpReader, WithoutPhpNothingIsSaid) {
  ManagedTrace other = Trace();
  other.runtime = STACKD_RUNTIME_V8;
  const ManagedFacts facts = Read({other});
  EXPECT_TRUE(facts.runtimes.empty());
  EXPECT_TRUE(facts.threads.empty());
}

TEST(PhpReader, LinesThatAreNoneAreNotShown) {
  ManagedTrace trace = Trace();
  trace.frames = {Frame(1, -5), Frame(1, int64_t{1} << 40)};
  const ManagedFacts facts = Read({trace});
  for (const ManagedFrame& frame : facts.threads.at(7).stacks.at(0).frames) EXPECT_EQ(frame.line, 0);
}

}  // namespace
}  // namespace stackd
