#include "daemon/resymbolize/earlier_stacks.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace stackd {
namespace {

// Frames "address origin function line", innermost first, of the thread 1.
v1::Dump DumpOf(std::initializer_list<v1::Frame> frames, v1::Stack::End end = v1::Stack::ROOT) {
  v1::Dump dump;
  v1::Stack* stack = dump.add_stacks();
  stack->set_end(end);
  for (const v1::Frame& frame : frames) *stack->add_frames() = frame;
  dump.add_threads()->set_tid(1);
  dump.mutable_threads(0)->set_stack(0);
  return dump;
}

v1::Frame FrameAt(const std::string& address, v1::Frame::Origin origin, const std::string& function = "", int line = 0) {
  v1::Frame frame;
  frame.set_address(address);
  frame.set_origin(origin);
  frame.set_function(function);
  if (line > 0) frame.set_file("a.cc");
  frame.set_line(line);
  return frame;
}

NativeStack Unwound(std::initializer_list<uint64_t> pcs, StackEnd end) {
  NativeStack stack{.frames = {}, .end = end};
  for (uint64_t pc : pcs) stack.frames.push_back({.pc_avma = pc, .cfa_avma = 0, .origin = FrameOrigin::kCfi});
  return stack;
}

std::vector<uint64_t> PcsOf(const NativeStack& stack) {
  std::vector<uint64_t> pcs;
  for (const NativeFrame& frame : stack.frames) pcs.push_back(frame.pc_avma);
  return pcs;
}

std::shared_ptr<const SourceLocation> Named(const std::string& function, int line) {
  return std::make_shared<const SourceLocation>(SourceLocation{{{function, "b.cc", line, false}}, ""});
}

TEST(EarlierStacks, GoOnWhereUnwindingEndsNowForLackOfAFile) {
  const EarlierStacks earlier(DumpOf(
      {FrameAt("0x10", v1::Frame::REGISTERS), FrameAt("0x21", v1::Frame::CFI), FrameAt("0x30", v1::Frame::SIGNAL_FRAME)}));
  const NativeStack longer = earlier.Longer(1, Unwound({0x10}, StackEnd::kNoUnwindInfo));
  EXPECT_EQ(PcsOf(longer), (std::vector<uint64_t>{0x10, 0x21, 0x30}));
  EXPECT_EQ(longer.end, StackEnd::kRoot);
  EXPECT_EQ(longer.frames[0].origin, FrameOrigin::kRegisters);
  EXPECT_EQ(longer.frames[2].origin, FrameOrigin::kSignalFrame);
}

TEST(EarlierStacks, KeepFramesThatTheCodeOrASearchHasFound) {
  const EarlierStacks earlier(DumpOf({FrameAt("0x10", v1::Frame::REGISTERS), FrameAt("0x21", v1::Frame::CODE),
                                      FrameAt("0x30", v1::Frame::SEARCH), FrameAt("0x40", v1::Frame::RUNTIME)}));
  const NativeStack longer = earlier.Longer(1, Unwound({0x10}, StackEnd::kNoUnwindInfo));
  EXPECT_EQ(PcsOf(longer), (std::vector<uint64_t>{0x10, 0x21, 0x30}));
  EXPECT_EQ(longer.frames[2].origin, FrameOrigin::kSearch);
}

TEST(EarlierStacks, GiveWayToAStackThatIsWholeNow) {
  const EarlierStacks earlier(DumpOf({FrameAt("0x10", v1::Frame::REGISTERS), FrameAt("0x21", v1::Frame::FRAME_POINTER)},
                                     v1::Stack::NO_UNWIND_INFO));
  EXPECT_EQ(PcsOf(earlier.Longer(1, Unwound({0x10}, StackEnd::kRoot))), std::vector<uint64_t>{0x10});
  EXPECT_EQ(PcsOf(earlier.Longer(1, Unwound({0x10, 0x22, 0x33}, StackEnd::kUnreadable))).size(), 3u);
  EXPECT_EQ(PcsOf(earlier.Longer(2, Unwound({0x99}, StackEnd::kUnreadable))), std::vector<uint64_t>{0x99})
      << "of another thread";
}

// A stack that recursion was folded in, as people read it: two functions, `turns` times, then another.
v1::Dump FoldedDump(int64_t turns, int32_t length = 2) {
  v1::Frame a = FrameAt("0x10", v1::Frame::CFI), b = FrameAt("0x20", v1::Frame::CFI);
  a.set_repeat_count(turns);
  a.set_repeat_length(length);
  return DumpOf({a, b, FrameAt("0x30", v1::Frame::CFI)});
}

TEST(EarlierStacks, UnfoldRecursion) {
  const EarlierStacks earlier(FoldedDump(3));
  const NativeStack stack = earlier.Longer(1, Unwound({0x10}, StackEnd::kNoUnwindInfo));
  EXPECT_EQ(PcsOf(stack), (std::vector<uint64_t>{0x10, 0x20, 0x10, 0x20, 0x10, 0x20, 0x30}));
  EXPECT_EQ(stack.omitted_bytes, 0u);
}

TEST(EarlierStacks, PutAGapInPlaceOfTurnsThatNoUnwinderWouldHaveGoneThrough) {
  v1::Dump dump = FoldedDump(65'412);
  dump.mutable_stacks(0)->set_omitted_bytes(8 << 20);
  dump.mutable_stacks(0)->set_omitted_before(2);
  const NativeStack stack = EarlierStacks(dump).Longer(1, Unwound({0x10}, StackEnd::kNoUnwindInfo));
  ASSERT_EQ(stack.frames.size(), 16u * 2 + 2 + 1);
  EXPECT_EQ(stack.omitted_before, 32u);
  EXPECT_EQ(stack.omitted_bytes, 8u << 20);
  EXPECT_EQ(stack.frames.back().pc_avma, 0x30u);
  // From frame to frame there is one step, so that the next fold computes the same number of turns.
  EXPECT_EQ(stack.frames[33].cfa_avma - stack.frames[1].cfa_avma, 2u * (65'412 - 1));
}

TEST(EarlierStacks, KeepTheGapOfAStackOfWhichBothEndsWereCopied) {
  v1::Dump dump = DumpOf({FrameAt("0x10", v1::Frame::INLINED), FrameAt("0x10", v1::Frame::REGISTERS),
                          FrameAt("0x20", v1::Frame::CFI), FrameAt("0x30", v1::Frame::CFI)});
  dump.mutable_stacks(0)->set_omitted_bytes(4096);
  dump.mutable_stacks(0)->set_omitted_before(3);
  const NativeStack stack = EarlierStacks(dump).Longer(1, Unwound({0x10}, StackEnd::kNoUnwindInfo));
  EXPECT_EQ(stack.omitted_bytes, 4096u);
  EXPECT_EQ(stack.omitted_before, 2u) << "the inlined frame is none of the stack's";
}

TEST(EarlierStacks, SurviveNumbersThatMakeNoSense) {
  for (int64_t turns : {INT64_MAX, INT64_MIN, int64_t{5000}}) {
    for (int32_t length : {INT32_MAX, INT32_MIN, 1}) {
      const NativeStack stack = EarlierStacks(FoldedDump(turns, length)).Longer(1, Unwound({}, StackEnd::kUnreadable));
      EXPECT_LE(stack.frames.size(), kMaxFrames + 8u) << turns << " " << length;
      EXPECT_GE(stack.frames.size(), 2u);
    }
  }
  v1::Frame nowhere = FrameAt("", v1::Frame::CFI);
  nowhere.set_repeat_count(INT64_MAX);
  nowhere.set_repeat_length(1);
  EXPECT_TRUE(EarlierStacks(DumpOf({nowhere})).Longer(1, Unwound({}, StackEnd::kUnreadable)).frames.empty());
}

TEST(EarlierStacks, KeepTheNamesThatAreBetter) {
  const EarlierStacks earlier(
      DumpOf({FrameAt("0x10", v1::Frame::INLINED, "inlined", 7), FrameAt("0x10", v1::Frame::REGISTERS, "f", 8),
              FrameAt("0x21", v1::Frame::CFI, "g"), FrameAt("0x31", v1::Frame::CFI)}));
  const NativeStack stack = earlier.Longer(1, Unwound({}, StackEnd::kUnreadable));
  ASSERT_EQ(stack.frames.size(), 3u) << "an inlined frame is no frame of the stack";
  const auto unknown = std::make_shared<const SourceLocation>(SourceLocation{{}, "no symbols"});

  const auto f = earlier.Better(stack.frames[0], unknown);
  ASSERT_EQ(f->frames.size(), 2u);
  EXPECT_EQ(f->frames[0].function, "inlined");
  EXPECT_TRUE(f->frames[0].inlined);
  EXPECT_EQ(f->frames[1].line, 8);
  EXPECT_EQ(earlier.Better(stack.frames[0], Named("f", 0))->frames.size(), 2u) << "lines are better than none";
  EXPECT_EQ(earlier.Better(stack.frames[0], Named("renamed", 9))->frames[0].function, "renamed") << "equally good: the new";
  EXPECT_EQ(earlier.Better(stack.frames[1], unknown)->frames[0].function, "g");
  EXPECT_EQ(earlier.Better(stack.frames[1], Named("g", 3))->frames[0].line, 3);
  EXPECT_EQ(earlier.Better(stack.frames[2], unknown), unknown);
}

TEST(EarlierStacks, KeepASignalTrampolineOne) {
  const EarlierStacks earlier(DumpOf({FrameAt("0x10", v1::Frame::CFI, "<signal handler called>")}));
  EXPECT_TRUE(earlier.Longer(1, Unwound({}, StackEnd::kUnreadable)).frames[0].is_signal_trampoline);
}

}  // namespace
}  // namespace stackd
