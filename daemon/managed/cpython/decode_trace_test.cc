#include "daemon/managed/cpython/decode_trace.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace stackd {
namespace {

constexpr uint64_t kVersion38 = 0x030812f0, kVersion312 = 0x030c01f0;
constexpr uint64_t kInner = 0x1000, kOuter = 0x2000;

ManagedTrace TwoFunctions(uint64_t version) {
  ManagedTrace trace{
      .runtime = STACKD_RUNTIME_CPYTHON, .version = version, .frames = {}, .symbols = {}, .entries = nullptr};
  trace.symbols = {{.key = kInner, .first_line = 3, .function = "Worker.inner", .file = "/srv/a.py", .table = ""},
                   {.key = kOuter, .first_line = 9, .function = "outer", .file = "/srv/a.py", .table = ""}};
  return trace;
}

ManagedTraceFrame Frame(uint64_t key) { return {.key = key, .position = -1}; }
ManagedTraceFrame EndOfActivation(uint64_t anchor) { return {.flags = STACKD_MANAGED_BOUNDARY, .anchor_avma = anchor}; }

std::vector<std::string> Describe(const ManagedStack& stack) {
  std::vector<std::string> lines;
  for (const ManagedFrame& frame : stack.frames) {
    const std::string what =
        frame.boundary ? "--" : frame.function.str() + " " + frame.file.str() + ":" + std::to_string(frame.line);
    lines.push_back(what + " @" + std::to_string(frame.anchor_avma));
  }
  return lines;
}

using Lines = std::vector<std::string>;

TEST(DecodeTrace, EveryFrameOfAnActivationStandsWhereItsEndDoes) {
  ManagedTrace trace = TwoFunctions(kVersion312);
  trace.frames = {Frame(kInner),        Frame(kInner), EndOfActivation(700),
                  EndOfActivation(800), Frame(kOuter), EndOfActivation(900)};
  const ManagedStack stack = CpythonTraceDecoder().Decode(trace);
  EXPECT_EQ(Describe(stack), (Lines{"Worker.inner /srv/a.py:3 @700", "Worker.inner /srv/a.py:3 @700", "-- @700", "-- @800",
                                    "outer /srv/a.py:9 @900", "-- @900"}));
  EXPECT_EQ(stack.interpreter_function, "");
  EXPECT_EQ(stack.language, Language::kPython);
}

TEST(DecodeTrace, AFrameLikeTheOneBeforeStandsWhereItsOwnActivationDoes) {
  ManagedTrace trace = TwoFunctions(kVersion312);
  trace.symbols[0].table = "\xe8\x02";
  ManagedTraceFrame elsewhere = Frame(kInner);
  elsewhere.position = 0;
  trace.frames = {Frame(kInner), EndOfActivation(700), Frame(kInner), elsewhere, Frame(kInner)};
  EXPECT_EQ(Describe(CpythonTraceDecoder().Decode(trace)),
            (Lines{"Worker.inner /srv/a.py:3 @700", "-- @700", "Worker.inner /srv/a.py:3 @0", "Worker.inner /srv/a.py:4 @0",
                   "Worker.inner /srv/a.py:3 @0"}));
}

TEST(DecodeTrace, To310EachFrameIsACallOfTheInterpretersFunction) {
  ManagedTrace trace = TwoFunctions(kVersion38);
  trace.frames = {Frame(kInner), Frame(kOuter)};
  const ManagedStack stack = CpythonTraceDecoder().Decode(trace);
  EXPECT_EQ(Describe(stack), (Lines{"Worker.inner /srv/a.py:3 @0", "-- @0", "outer /srv/a.py:9 @0", "-- @0"}));
  EXPECT_EQ(stack.interpreter_function, "_PyEval_EvalFrameDefault");
}

TEST(DecodeTrace, NamesAreUtf8WhateverTheyWereKeptIn) {
  ManagedTrace trace = TwoFunctions(kVersion312);
  trace.symbols[0].function = "caf\xe9";
  trace.symbols[0].file = std::string_view("\x42\x30.\0p\0y\0\x80\xdc", 10);
  trace.symbols[0].table_format = 1 | 2 << 4;
  trace.symbols[1].function = std::string_view("\0\xf6\x01\0", 4);
  trace.symbols[1].table_format = 4;
  trace.frames = {Frame(kInner), Frame(kOuter)};
  EXPECT_EQ(Describe(CpythonTraceDecoder().Decode(trace)),
            (Lines{"caf\xc3\xa9 \xe3\x81\x82.py?:3 @0", "\xf0\x9f\x98\x80 /srv/a.py:9 @0"}));
}

TEST(DecodeTrace, AFrameWithoutASymbolIsStillAFrame) {
  ManagedTrace trace = TwoFunctions(kVersion312);
  trace.frames = {Frame(0x3000), Frame(kOuter)};
  const ManagedStack stack = CpythonTraceDecoder().Decode(trace);
  ASSERT_EQ(stack.frames.size(), 2u);
  EXPECT_NE(stack.frames[0].function, "");
}

TEST(DecodeTrace, AnAddressMayBeAnotherFunctionsInAnotherTrace) {
  CpythonTraceDecoder decoder;
  ManagedTrace first = TwoFunctions(kVersion312), second = first, third = first;
  first.frames = second.frames = third.frames = {Frame(kInner), Frame(kOuter)};
  second.symbols[0] = {.key = kInner, .first_line = 50, .function = "made_later", .file = "/srv/b.py", .table = ""};
  third.symbols.erase(third.symbols.begin());
  const Lines before = {"Worker.inner /srv/a.py:3 @0", "outer /srv/a.py:9 @0"};
  EXPECT_EQ(Describe(decoder.Decode(first)), before);
  EXPECT_EQ(Describe(decoder.Decode(second)), (Lines{"made_later /srv/b.py:50 @0", "outer /srv/a.py:9 @0"}));
  EXPECT_EQ(Describe(decoder.Decode(third)),
            (Lines{"(a function whose name found no room) :0 @0", "outer /srv/a.py:9 @0"}));
  EXPECT_EQ(Describe(decoder.Decode(first)), before);
}

TEST(DecodeTrace, VersionsAreWrittenAsPeopleWriteThem) {
  EXPECT_EQ(CpythonName(kVersion38), "CPython 3.8.18");
  EXPECT_EQ(CpythonName(0x030e00b2), "CPython 3.14.0b2");
  EXPECT_EQ(CpythonName(0x030d00c3), "CPython 3.13.0rc3");
  EXPECT_EQ(CpythonName(0x030a0d00), "CPython 3.10.13");
  EXPECT_EQ(CpythonName(0x030a0000), "CPython 3.10");
}

}  // namespace
}  // namespace stackd
