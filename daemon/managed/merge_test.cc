#include "daemon/managed/merge.h"

#include <gtest/gtest.h>

#include <deque>
#include <initializer_list>
#include <string>

#include "daemon/managed/frame_finder.h"

namespace stackd {
namespace {

constexpr uint64_t kStackAvma = 0x7fff0000;
constexpr uint64_t kFrameBytes = 0x100;

// Frame i lies in [kStackAvma + i * kFrameBytes, ... + kFrameBytes). A function without a name is code without a file.
NamedStack Native(std::initializer_list<const char*> functions, StackEnd end = StackEnd::kRoot) {
  NamedStack stack{.native = {.frames = {}, .end = end}, .locations = {}};
  uint64_t cfa_avma = kStackAvma;
  for (const char* function : functions) {
    cfa_avma += kFrameBytes;
    stack.native.frames.push_back({.pc_avma = 0x1000 + cfa_avma, .cfa_avma = cfa_avma, .origin = FrameOrigin::kCfi});
    auto location = std::make_shared<SourceLocation>();
    if (*function != 0) location->frames.push_back({.function = function, .file = ""});
    stack.locations.push_back(std::move(location));
  }
  return stack;
}

// An address in native frame `i`.
uint64_t In(size_t i) { return kStackAvma + i * kFrameBytes + 0x40; }

ManagedFrame At(const char* function, uint64_t anchor_avma) { return {.function = function, .anchor_avma = anchor_avma}; }
ManagedFrame Python(const char* function) { return {.function = function}; }
ManagedFrame Boundary() { return {.function = "native call", .boundary = true}; }

ManagedStack Eval(std::vector<ManagedFrame> frames) {
  return {.language = Language::kPython, .frames = std::move(frames), .interpreter_function = "_PyEval_EvalFrameDefault"};
}

// As people read it: "f", "(native)" where it is replaced, "f?" where it has no place; "?" for code without a name.
std::string Shown(const NamedStack& stack) {
  std::string text;
  const auto add = [&](const std::string& name) { text += (text.empty() ? "" : " ") + name; };
  auto calls = stack.runtime_calls.begin();
  for (size_t i = 0; i <= stack.locations.size(); ++i) {
    bool replaced = false;
    for (; calls != stack.runtime_calls.end() && calls->native_frame <= i; ++calls) {
      for (const RuntimeFrame& frame : calls->frames) add(frame.function + (frame.unplaced ? "?" : ""));
      replaced = replaced || calls->replaces;
    }
    if (i == stack.locations.size()) break;
    const std::string name = stack.locations[i]->frames.empty() ? "?" : stack.locations[i]->frames.back().function;
    add(replaced ? "(" + name + ")" : name);
  }
  return text;
}

std::string Merged(const std::vector<ManagedStack>& managed, NamedStack stack) {
  MergeManaged(managed, kStackAvma, &stack);
  return Shown(stack);
}

TEST(MergeTest, AnAnchorPutsAFrameInTheNativeFrameThatHoldsIt) {
  // Node: JavaScript in code made at run time and in the interpreter of a file.
  EXPECT_EQ(Merged({{.language = Language::kJavascript, .frames = {At("spin", In(1)), At("serve", In(2))}}},
                   Native({"v8::Date", "", "Builtins_InterpreterEntryTrampoline", "Builtins_JSEntry", "main"})),
            "v8::Date spin (?) serve (Builtins_InterpreterEntryTrampoline) Builtins_JSEntry main");
}

TEST(MergeTest, TheBordersOfAFrameAreItsStackPointerAndItsCfa) {
  const NamedStack native = Native({"a", "b"});
  const FrameFinder finder(native.native, kStackAvma);
  EXPECT_EQ(finder.Find(kStackAvma).native_frame, 0u);
  EXPECT_TRUE(finder.Find(kStackAvma).inside);
  EXPECT_EQ(finder.Find(kStackAvma + kFrameBytes - 1).native_frame, 0u);
  EXPECT_EQ(finder.Find(kStackAvma + kFrameBytes).native_frame, 1u);
  EXPECT_EQ(finder.Find(kStackAvma + 2 * kFrameBytes).native_frame, 2u);
  EXPECT_FALSE(finder.Find(kStackAvma + 2 * kFrameBytes).inside);
  EXPECT_EQ(finder.Find(kStackAvma - 1).native_frame, 0u);
  EXPECT_FALSE(finder.Find(kStackAvma - 1).inside);
}

TEST(MergeTest, FramesWithoutAnAnchorFollowTheOneBefore) {
  // Java: inlined into what the compiler made one frame of.
  EXPECT_EQ(
      Merged({{.language = Language::kJava, .frames = {At("Map.get", In(1)), At("Cache.find", 0), At("Main.run", In(2))}}},
             Native({"memcpy", "", "", "JavaCalls::call_helper"})),
      "memcpy Map.get Cache.find (?) Main.run (?) JavaCalls::call_helper");
}

TEST(MergeTest, ActivationsAreCountedOffAgainstCallsOfTheInterpreter) {
  EXPECT_EQ(
      Merged({Eval({Python("inner"), Python("outer"), Boundary(), Python("<module>"), Boundary()})},
             Native({"qsort", "_PyEval_EvalFrameDefault", "cfunction_call", "_PyEval_EvalFrameDefault.cold", "main"})),
      "qsort inner outer (_PyEval_EvalFrameDefault) cfunction_call <module> (_PyEval_EvalFrameDefault.cold) main");
}

TEST(MergeTest, ACallThatTheRuntimeDoesNotKnowYetIsTheInnermost) {
  EXPECT_EQ(Merged({Eval({Python("f"), Boundary()})},
                   Native({"_PyEval_EvalFrameDefault", "vectorcall", "_PyEval_EvalFrameDefault", "main"})),
            "_PyEval_EvalFrameDefault vectorcall f (_PyEval_EvalFrameDefault) main");
}

TEST(MergeTest, AnActivationWithoutFramesCountsAndReplacesNothing) {
  EXPECT_EQ(Merged({Eval({Boundary(), Python("f"), Boundary()})},
                   Native({"_PyEval_EvalFrameDefault", "_PyEval_EvalFrameDefault", "main"})),
            "_PyEval_EvalFrameDefault f (_PyEval_EvalFrameDefault) main");
}

TEST(MergeTest, WhatFindsNoPlaceStandsAtTheEndAndIsMarked) {
  EXPECT_EQ(Merged({Eval({Python("f"), Boundary(), Python("g"), Boundary(), Python("h")})},
                   Native({"_PyEval_EvalFrameDefault", "main"})),
            "f (_PyEval_EvalFrameDefault) main g? h?");
  EXPECT_EQ(Merged({{.language = Language::kJava, .frames = {Python("Main.main")}}}, Native({"read"})), "read Main.main?");
}

TEST(MergeTest, BehindTheEndOfATruncatedStackTheRestOfTheFramesFollows) {
  EXPECT_EQ(Merged({Eval({Python("f"), Boundary(), Python("g"), Boundary(), Python("h")})},
                   Native({"_PyEval_EvalFrameDefault", "call"}, StackEnd::kTruncated)),
            "f (_PyEval_EvalFrameDefault) call g h");
}

TEST(MergeTest, WhatARuntimeSaysOfItsCallersStandsBehindCodeThatWasNotUnwoundFurther) {
  const ManagedStack said{.language = Language::kGo, .frames = {Python("main.fail"), Python("main.main")}};
  EXPECT_EQ(Merged({said}, Native({"c_fails", "asmcgocall"}, StackEnd::kBadReturnAddress)),
            "c_fails asmcgocall main.fail main.main");
  EXPECT_EQ(Merged({said}, Native({}, StackEnd{})), "main.fail main.main");
}

TEST(MergeTest, ARuntimeThatLostItsWayIsCountedFromTheInnermostCall) {
  ManagedStack cut = Eval({Python("f"), Boundary()});
  cut.problem = "frames are missing";
  EXPECT_EQ(Merged({cut}, Native({"_PyEval_EvalFrameDefault", "call", "_PyEval_EvalFrameDefault", "main"})),
            "f (_PyEval_EvalFrameDefault) call _PyEval_EvalFrameDefault main");
}

TEST(MergeTest, BehindAGapActivationsAreCountedFromTheOutermostCall) {
  NamedStack native = Native({"_PyEval_EvalFrameDefault", "call", "_PyEval_EvalFrameDefault", "main"});
  native.native.omitted_bytes = 1 << 20;
  native.native.omitted_before = 2;
  EXPECT_EQ(
      Merged({Eval({Python("a"), Boundary(), Python("b"), Boundary(), Python("c"), Boundary(), Python("d")})}, native),
      "a (_PyEval_EvalFrameDefault) call b c d (_PyEval_EvalFrameDefault) main");
}

TEST(MergeTest, AnAnchorInAGapStandsBeforeTheFrameBehindIt) {
  NamedStack native = Native({"a", "b"});
  native.native.frames[1].cfa_avma += 1 << 20;
  native.native.omitted_bytes = 1 << 20;
  native.native.omitted_before = 1;
  EXPECT_EQ(Merged({{.language = Language::kJavascript, .frames = {At("js", In(5))}}}, native), "a js b");
}

TEST(MergeTest, CodeThatCouldNotBeUnwoundHasTheFirstAnchorBeyondItsCaller) {
  NamedStack native = Native({"read", ""}, StackEnd::kNoUnwindInfo);
  native.native.frames[1].cfa_avma = 0;
  EXPECT_EQ(
      Merged({{.language = Language::kJava, .frames = {At("read", In(3)), At("read0", 0), At("run", In(7))}}}, native),
      "read read read0 (?) run");
}

TEST(MergeTest, NothingIsPlacedBeyondAThreadsFirstFunction) {
  EXPECT_EQ(
      Merged({{.language = Language::kJava, .frames = {At("run", In(1)), At("main", In(5))}}}, Native({"a", "", "clone"})),
      "a run (?) clone main?");
}

TEST(MergeTest, FramesOnASignalsStackAndBelowItFindTheirOwn) {
  // The handler runs on a stack above the one that it interrupted.
  NamedStack native = Native({"handler", "<signal handler called>", "", "main"});
  constexpr uint64_t kOtherStackAvma = 0x10000;
  native.native.frames[1].cfa_avma = kOtherStackAvma;
  native.native.frames[2].cfa_avma = kOtherStackAvma + 0x80;
  native.native.frames[3].cfa_avma = kOtherStackAvma + 0x100;
  EXPECT_EQ(Merged({{.language = Language::kJava, .frames = {At("run", kOtherStackAvma + 0x70)}}}, native),
            "handler <signal handler called> run (?) main");
}

TEST(MergeTest, TwoRuntimesInOneThreadKeepTheirOrder) {
  EXPECT_EQ(Merged({Eval({Python("py")}), {.language = Language::kJavascript, .frames = {At("js", In(0))}}},
                   Native({"", "node::Call", "_PyEval_EvalFrameDefault", "main"})),
            "js (?) node::Call py (_PyEval_EvalFrameDefault) main");
}

TEST(MergeTest, WithoutANativeStackAllFramesHaveNoPlace) {
  EXPECT_EQ(Merged({Eval({Python("f")})}, Native({})), "f?");
  EXPECT_EQ(Merged({{.language = Language::kJava, .frames = {At("run", In(1))}}}, Native({}, StackEnd::kUnreadable)),
            "run");
}

TEST(ManagedKeyTest, DoesNotDependOnWhereAStackLies) {
  const std::vector<ManagedStack> here = {{.language = Language::kJava, .frames = {At("run", In(1))}}};
  const std::vector<ManagedStack> there = {{.language = Language::kJava, .frames = {At("run", In(1) + 0x100000)}}};
  NamedStack moved = Native({"a", "b"});
  for (NativeFrame& frame : moved.native.frames) frame.cfa_avma += 0x100000;
  ManagedKeys keys;
  const std::string key = keys.Of(here, kStackAvma, Native({"a", "b"}).native);
  EXPECT_EQ(keys.Of(there, kStackAvma + 0x100000, moved.native), key);
}

TEST(ManagedKeyTest, TellsApartWhatIsShownDifferently) {
  const NativeStack native = Native({"a", "b"}).native;
  std::deque<std::vector<ManagedStack>> captured;
  ManagedKeys keys;
  const auto key = [&](ManagedFrame frame) {
    captured.push_back({{.language = Language::kJava, .frames = {std::move(frame)}}});
    return keys.Of(captured.back(), kStackAvma, native);
  };
  const std::string plain = key({.function = "run", .file = "A.java", .line = 1, .anchor_avma = In(0)});
  // Texts that are no copies of each other.
  EXPECT_EQ(key({.function = "run", .file = "A.java", .line = 1, .anchor_avma = In(0)}), plain);
  EXPECT_NE(key({.function = "ran", .file = "A.java", .line = 1, .anchor_avma = In(0)}), plain);
  EXPECT_NE(key({.function = "run", .file = "B.java", .line = 1, .anchor_avma = In(0)}), plain);
  EXPECT_NE(key({.function = "run", .file = "A.java", .line = 2, .anchor_avma = In(0)}), plain);
  EXPECT_NE(key({.function = "run", .file = "A.java", .line = 1, .anchor_avma = In(1)}), plain);
  EXPECT_NE(key({.function = "runA", .file = ".java", .line = 1, .anchor_avma = In(0)}), plain);
  EXPECT_EQ(keys.Of({}, kStackAvma, native), "");
}

}  // namespace
}  // namespace stackd
