#include "daemon/managed/v8/v8_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/fd.h"
#include "stackd/v8_trace.h"

namespace stackd {
namespace {

constexpr uint64_t kVersion = uint64_t{12} << 48 | uint64_t{4} << 32 | uint64_t{254} << 16 | 21;

ManagedTraceFrame Frame(uint64_t key, int64_t position = STACKD_V8_NO_POSITION, uint64_t anchor_avma = 0,
                        uint16_t flags = 0) {
  ManagedTraceFrame frame;
  frame.flags = flags;
  frame.anchor_avma = anchor_avma;
  frame.key = key;
  frame.position = position;
  return frame;
}

ManagedSymbol Symbol(uint64_t key, std::string_view function, std::string_view file = "", uint32_t table_format = 0) {
  ManagedSymbol symbol;
  symbol.key = key;
  symbol.table_format = table_format;
  symbol.function = function;
  symbol.file = file;
  return symbol;
}

ManagedTrace Trace() {
  ManagedTrace trace;
  trace.runtime = STACKD_RUNTIME_V8;
  trace.version = kVersion;
  return trace;
}

Capture CaptureOf(std::vector<ManagedTrace> traces) {
  Capture capture;
  capture.threads.emplace_back();
  capture.threads.back().tid = 7;
  capture.threads.back().traces = std::move(traces);
  return capture;
}

ManagedFacts Read(const Capture& capture, const ProcessFiles* memory = nullptr) {
  ManagedFacts facts;
  V8Reader().Read({capture, memory, std::numeric_limits<int64_t>::max()}, &facts);
  return facts;
}

TEST(V8Reader, FramesHaveTheNamesFilesAndAnchorsOfTheirSymbols) {
  ManagedTrace trace = Trace();
  trace.frames = {Frame(5, STACKD_V8_NO_POSITION, 0x1000), Frame(9, STACKD_V8_NO_POSITION, 0x2000),
                  Frame(0, STACKD_V8_NO_POSITION, 0x3000, STACKD_MANAGED_BOUNDARY),
                  Frame(77, 0x7f0012345678 * 2 + 1, 0x4000)};
  trace.symbols = {Symbol(5, "handle", "file:///srv/app.mjs"), Symbol(9, "", "node:fs")};
  const ManagedFacts facts = Read(CaptureOf({trace}));
  ASSERT_EQ(facts.threads.size(), 1u);
  ASSERT_EQ(facts.threads.at(7).stacks.size(), 1u);
  const ManagedStack& stack = facts.threads.at(7).stacks[0];
  EXPECT_EQ(stack.language, Language::kJavascript);
  EXPECT_EQ(stack.problem, "");
  ASSERT_EQ(stack.frames.size(), 4u);
  EXPECT_EQ(stack.frames[0].function, "handle");
  EXPECT_EQ(stack.frames[0].file, "/srv/app.mjs") << "a module's URL is a path";
  EXPECT_EQ(stack.frames[0].anchor_avma, 0x1000u);
  EXPECT_EQ(stack.frames[1].function, "(anonymous)");
  EXPECT_EQ(stack.frames[1].file, "node:fs");
  EXPECT_TRUE(stack.frames[2].boundary);
  EXPECT_FALSE(stack.frames[3].function.empty()) << "a frame whose symbol was lost is a frame";
  EXPECT_EQ(stack.frames[3].pc_avma, 0x7f0012345678u);
  ASSERT_EQ(facts.runtimes.size(), 1u);
  EXPECT_EQ(facts.runtimes[0].name, "V8 12.4.254.21");
}

TEST(V8Reader, AFrameThatSharesItsPlaceWithTheNextWasCompiledIntoThat) {
  ManagedTrace trace = Trace();
  trace.frames = {Frame(1, 2 * 9, 0x1000), Frame(2, 2 * 8, 0x1000), Frame(3, 2 * 7, 0x2000), Frame(4), Frame(5)};
  const ManagedFacts facts = Read(CaptureOf({trace}));
  std::vector<bool> inlined;
  for (const ManagedFrame& frame : facts.threads.at(7).stacks.at(0).frames) inlined.push_back(frame.inlined);
  EXPECT_EQ(inlined, std::vector<bool>({true, false, false, false, false}));
}

TEST(V8Reader, NamesBecomeUtf8) {
  using std::string_view_literals::operator""sv;
  ManagedTrace trace = Trace();
  trace.frames = {Frame(1), Frame(2), Frame(3)};
  trace.symbols = {Symbol(1,
                          "gr\xf6\xdf"
                          "e",
                          "\xe9", STACKD_V8_LATIN1 | STACKD_V8_LATIN1 << 2),
                   Symbol(2, "\xbb\x03=\xd8\x00\xde"sv, "", STACKD_V8_UTF16),
                   Symbol(3,
                          "=\xd8"
                          "a\0b"sv,
                          "", STACKD_V8_UTF16)};
  const ManagedFacts facts = Read(CaptureOf({trace}));
  const auto& frames = facts.threads.at(7).stacks.at(0).frames;
  EXPECT_EQ(frames[0].function, "größe");
  EXPECT_EQ(frames[0].file, "é");
  EXPECT_EQ(frames[1].function, "λ😀");
  EXPECT_EQ(frames[2].function,
            "\xef\xbf\xbd"
            "a")
      << "half a pair, and half a character";
}

TEST(V8Reader, AWalkThatEndedEarlySaysSo) {
  ManagedTrace trace = Trace();
  trace.frames = {Frame(5, STACKD_V8_NO_POSITION, 0x1000)};
  ManagedTrace ending = Trace();
  ending.status = STACKD_WALK_LIMIT;
  const ManagedFacts facts = Read(CaptureOf({trace, ending}));
  EXPECT_EQ(facts.threads.at(7).stacks.at(0).frames.size(), 1u);
  EXPECT_NE(facts.threads.at(7).stacks.at(0).problem, "");
  EXPECT_EQ(facts.runtimes.at(0).problem, "") << "that is of this thread alone";
}

TEST(V8Reader, AVersionThatNobodyKnowsIsSaidOfTheRuntime) {
  ManagedTrace trace = Trace();
  trace.status = STACKD_WALK_UNKNOWN_VERSION;
  EXPECT_NE(Read(CaptureOf({trace})).runtimes.at(0).problem, "");
}

TEST(V8Reader, WithoutV8NothingIsSaid) {
  ManagedTrace other;
  other.runtime = STACKD_RUNTIME_CPYTHON;
  const ManagedFacts facts = Read(CaptureOf({other}));
  EXPECT_TRUE(facts.runtimes.empty());
  EXPECT_TRUE(facts.threads.empty());
}

TEST(V8Reader, APlaceInTheTextOfAScriptBecomesALine) {
  const std::string text = "one\ntwo\nthree";
  uint64_t source[4] = {0x1234567};
  uint64_t script[4] = {0, reinterpret_cast<uint64_t>(source) + 1};
  stackd_v8_script facts = {};
  facts.script = reinterpret_cast<uint64_t>(script) + 1;
  facts.source = script[1];
  facts.source_map = source[0];
  facts.chars = reinterpret_cast<uint64_t>(text.data());
  facts.chars_count = static_cast<uint32_t>(text.size());
  facts.source_bytes_at = 8;
  ManagedTrace trace = Trace();
  trace.frames = {Frame(5, 2 * 9)};
  trace.symbols = {Symbol(5, "f")};
  trace.symbols[0].table = {reinterpret_cast<const char*>(&facts), sizeof(facts)};
  ProcessFiles memory;
  Fd mem(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(memory.SetMemory(&mem));
  EXPECT_EQ(Read(CaptureOf({trace}), &memory).threads.at(7).stacks.at(0).frames.at(0).line, 3);
  EXPECT_EQ(Read(CaptureOf({trace})).threads.at(7).stacks.at(0).frames.at(0).line, 0) << "without memory there is no line";
  trace.symbols[0].table.remove_suffix(1);
  EXPECT_EQ(Read(CaptureOf({trace}), &memory).threads.at(7).stacks.at(0).frames.at(0).line, 0) << "a table that is cut";
}

}  // namespace
}  // namespace stackd
