// Stacks whose middle was not copied.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "daemon/unwind/testing/deep_recursion.h"
#include "daemon/unwind/testing/own_process.h"
#include "daemon/unwind/testing/synthetic_module.h"
#include "daemon/unwind/unwinder.h"

namespace stackd {
namespace {

using testing::ElementsAreArray;

constexpr uint64_t kBias = 0x7f0000000000;
constexpr uint64_t kStackBase = 0x7fff00000000, kStackBytes = 0x100000;

// Functions of 0x20 bytes. A call ends at 8 of each, and where there is a second one, at 0x10.
constexpr uint64_t kRecursive = 0x1000;     // CFA = rsp + 32; calls itself, then kLeaf
constexpr uint64_t kLeaf = 0x1020;          // CFA = rsp + 32; calls kRecursive
constexpr uint64_t kRootFunction = 0x1040;  // no caller; calls kRecursive
constexpr uint64_t kByRbp = 0x1060;         // CFA = rbp + 16, rbp saved at CFA - 16; calls itself
constexpr uint64_t kByPointer = 0x1080;     // CFA = rsp + 32; calls through a pointer
constexpr uint64_t kTiny = 0x10a0;          // CFA = rsp + 8; calls itself

uint64_t After(uint64_t function_svma, uint64_t call = 0) { return kBias + function_svma + 8 + 8 * call; }

class Code {
 public:
  void Call(uint64_t function_svma, uint64_t target_svma, uint64_t call = 0) {
    const uint64_t end = function_svma - 0x1000 + 8 + 8 * call;
    const int32_t distance = static_cast<int32_t>(target_svma - 0x1000 - end);
    bytes_[end - 5] = 0xe8;
    memcpy(&bytes_[end - 4], &distance, sizeof(distance));
  }
  void CallThroughRax(uint64_t function_svma) {
    const uint64_t end = function_svma - 0x1000 + 8;
    bytes_[end - 2] = 0xff;
    bytes_[end - 1] = 0xd0;
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_ = std::vector<uint8_t>(0x100);
};

std::vector<Mapping> Mappings() {
  CfiBuilder cfi;
  const uint32_t cie = cfi.Cie();
  cfi.Fde(cie, kRecursive, 0x20, {0x0e, 32});
  cfi.Fde(cie, kLeaf, 0x20, {0x0e, 32});
  cfi.Fde(cie, kRootFunction, 0x20, {0x07, 16});
  cfi.Fde(cie, kByRbp, 0x20, {0x0c, 6, 16, 0x86, 2});
  cfi.Fde(cie, kByPointer, 0x20, {0x0e, 32});
  cfi.Fde(cie, kTiny, 0x20, {});
  Code code;
  code.Call(kRecursive, kRecursive);
  code.Call(kRecursive, kLeaf, 1);
  code.Call(kLeaf, kRecursive);
  code.Call(kRootFunction, kRecursive);
  code.Call(kByRbp, kByRbp);
  code.CallThroughRax(kByPointer);
  code.Call(kTiny, kTiny);
  Mapping text{};
  text.start_avma = kBias + 0x1000;
  text.end_avma = kBias + 0x5000;
  text.file_offset = 0x1000;
  text.executable = true;
  text.module = SyntheticModule(".eh_frame", SHF_ALLOC, cfi.bytes(), code.bytes());
  text.bias = kBias;
  Mapping stack{};
  stack.start_avma = kStackBase;
  stack.end_avma = kStackBase + kStackBytes;
  stack.readable = stack.writable = true;
  return {text, stack};
}

constexpr uint64_t kInnerBase = kStackBase + 0x1000, kOuterBase = kStackBase + 0x80000;

StackCopy BothEnds(const std::vector<uint64_t>& inner, const std::vector<uint64_t>& outer) {
  std::vector<uint64_t> masks, words;
  for (const auto& part : {inner, outer}) {
    const size_t first = masks.size();
    masks.resize(first + (part.size() + 63) / 64);
    for (size_t i = 0; i < part.size(); ++i) masks[first + i / 64] |= uint64_t{1} << (i % 64);
    words.insert(words.end(), part.begin(), part.end());
  }
  return StackCopy(kInnerBase, static_cast<uint32_t>(inner.size()), masks, words, kOuterBase,
                   static_cast<uint32_t>(outer.size()));
}

class GapTest : public testing::Test {
 protected:
  // rsp is at the first word of `inner`.
  NativeStack Unwind(uint64_t rip, const std::vector<uint64_t>& inner, const std::vector<uint64_t>& outer) {
    registers_.value[Registers::kRip] = rip;
    registers_.value[Registers::kRsp] = kInnerBase;
    return unwinder_.Unwind(registers_, BothEnds(inner, outer), true, AddressMap(mappings_));
  }

  std::vector<Mapping> mappings_ = Mappings();
  Registers registers_;
  Unwinder unwinder_;
};

std::vector<uint64_t> Pcs(const NativeStack& stack) {
  std::vector<uint64_t> pcs;
  for (const NativeFrame& frame : stack.frames) pcs.push_back(frame.pc_avma);
  return pcs;
}

// Three words of variables and the return address.
void AddFrame(uint64_t return_address, std::vector<uint64_t>* words) {
  words->insert(words->end(), {1, 2, 3, return_address});
}

std::vector<uint64_t> Recursion(int frames, std::optional<uint64_t> root = {}) {
  std::vector<uint64_t> words;
  for (int i = 0; i < frames; ++i) AddFrame(After(kRecursive), &words);
  if (root) AddFrame(*root, &words);
  return words;
}

TEST_F(GapTest, IsCrossedToTheLowestFrameThatIsWhole) {
  std::vector<uint64_t> inner = Recursion(5), outer = {9};
  inner.resize(inner.size() + 2);  // the gap begins in the middle of a frame
  const std::vector<uint64_t> rest = Recursion(3, After(kRootFunction));
  outer.insert(outer.end(), rest.begin(), rest.end());
  const NativeStack stack = Unwind(After(kRecursive), inner, outer);
  std::vector<uint64_t> expected(6 + 3, After(kRecursive));
  expected.push_back(After(kRootFunction));
  EXPECT_EQ(Pcs(stack), expected);
  EXPECT_EQ(stack.end, StackEnd::kRoot);
  EXPECT_EQ(stack.omitted_before, 6u);
  EXPECT_EQ(stack.omitted_bytes, kOuterBase - (kInnerBase + 8 * inner.size()));
  EXPECT_EQ(stack.frames[6].origin, FrameOrigin::kCfi);
  EXPECT_EQ(stack.frames[6].lookup_avma(), After(kRecursive) - 1);
}

TEST_F(GapTest, IsCrossedWithTheFramePointerThatTheFrameBelowSaved) {
  const auto slot = [](uint64_t base, uint64_t i) { return base + 8 * i; };
  registers_.value[Registers::kRbp] = slot(kInnerBase, 1);
  // Frames of three words: a variable, the saved frame pointer, the return address.
  const std::vector<uint64_t> inner = {1, slot(kInnerBase, 4), After(kByRbp), 1, slot(kInnerBase, 7), After(kByRbp), 1};
  const std::vector<uint64_t> outer = {1, slot(kOuterBase, 4), After(kByRbp), 1, slot(kOuterBase, 7), After(kByRbp), 1,
                                       0, After(kRootFunction)};
  const NativeStack stack = Unwind(After(kByRbp), inner, outer);
  EXPECT_THAT(Pcs(stack), ElementsAreArray({After(kByRbp), After(kByRbp), After(kByRbp), After(kByRbp), After(kByRbp),
                                            After(kRootFunction)}));
  EXPECT_EQ(stack.omitted_before, 3u);
}

// Where a function that had returned left its frame, as long as ours: it seems to be called by what is called now.
std::vector<uint64_t> WithTraceOf(uint64_t stale_pc, std::vector<uint64_t> words) {
  std::vector<uint64_t> outer = {stale_pc};
  outer.insert(outer.end(), words.begin(), words.end());
  return outer;
}

TEST_F(GapTest, IsNotCrossedToAFunctionThatTheNextCallDoesNotCall) {
  const auto rest = Recursion(2, After(kRootFunction));
  const NativeStack stack = Unwind(After(kByPointer), {1, 2, 3, After(kByPointer)}, WithTraceOf(After(kLeaf), rest));
  EXPECT_THAT(Pcs(stack), ElementsAreArray({After(kByPointer), After(kByPointer), After(kRecursive), After(kRecursive),
                                            After(kRootFunction)}));
}

TEST_F(GapTest, IsCrossedToRecursionRatherThanToWhatItCalledBefore) {
  // Each turn is called through a pointer, so that any function might be.
  std::vector<uint64_t> inner, outer;
  for (int i = 0; i < 4; ++i) AddFrame(After(kByPointer), &inner);
  for (int i = 0; i < 2; ++i) AddFrame(After(kByPointer), &outer);
  AddFrame(After(kRootFunction), &outer);
  const NativeStack stack = Unwind(After(kByPointer), inner, WithTraceOf(After(kLeaf), outer));
  std::vector<uint64_t> expected(5 + 2, After(kByPointer));
  expected.push_back(After(kRootFunction));
  EXPECT_EQ(Pcs(stack), expected);
}

TEST_F(GapTest, IsNotCrossedToAnAddressThatNoCallStandsBefore) {
  // Behind kRecursive's second call there is none; data of the program may be equal to any address.
  const auto rest = Recursion(2, After(kRootFunction));
  const NativeStack stack = Unwind(After(kRecursive), Recursion(2), WithTraceOf(After(kRecursive, 2), rest));
  EXPECT_EQ(stack.frames.size(), 3u + 3u);
}

TEST_F(GapTest, StaysOpenWhereNoWayLeadsToTheRoot) {
  for (const auto& outer : {Recursion(3), std::vector<uint64_t>(100, 7), std::vector<uint64_t>{}}) {
    const NativeStack stack = Unwind(After(kRecursive), Recursion(5), outer);
    EXPECT_EQ(stack.frames.size(), 6u);
    EXPECT_EQ(stack.end, StackEnd::kTruncated);
    EXPECT_EQ(stack.omitted_bytes, 0u);
  }
}

TEST_F(GapTest, IsNotCrossedToAnotherStack) {
  const auto outer = Recursion(3, After(kRootFunction));
  Mapping& stack = mappings_.back();
  const uint64_t end_avma = std::exchange(stack.end_avma, kOuterBase - 0x1000);
  Mapping other = stack;
  other.start_avma = kOuterBase;
  other.end_avma = end_avma;
  mappings_.push_back(other);
  EXPECT_EQ(Unwind(After(kRecursive), Recursion(5), outer).frames.size(), 6u);
}

TEST_F(GapTest, IsCrossedWhereTheStackGrewAfterItsMappingWasRead) {
  mappings_.back().start_avma = kOuterBase - 0x1000;
  EXPECT_EQ(Unwind(After(kRecursive), Recursion(5), Recursion(3, After(kRootFunction))).end, StackEnd::kRoot);
}

TEST_F(GapTest, LeavesFramesForTheOuterEnd) {
  const std::vector<uint64_t> inner(2 * kMaxFrames, After(kTiny));
  const NativeStack stack = Unwind(After(kTiny), inner, {After(kTiny), After(kTiny), After(kRootFunction)});
  EXPECT_EQ(stack.end, StackEnd::kRoot);
  EXPECT_LT(stack.frames.size(), static_cast<size_t>(kMaxFrames));
  EXPECT_EQ(stack.frames.back().pc_avma, After(kRootFunction));
  EXPECT_EQ(stack.omitted_bytes, kOuterBase - (kInnerBase + 8 * (stack.omitted_before - 1)));
}

TEST_F(GapTest, IsGivenUpInTimeIfEveryWordLeadsFar) {
  const std::vector<uint64_t> words(32'768, After(kTiny));
  const NativeStack stack = Unwind(After(kTiny), words, words);
  EXPECT_NE(stack.end, StackEnd::kRoot);
}

// The stack of the caller and what it looks like with a hole.
struct DeepStack {
  OwnStack whole;
  std::vector<uint64_t> words;
  uint64_t top_avma;
} deep;

void CaptureDeepStack() {
  ucontext_t context;
  ASSERT_EQ(getcontext(&context), 0);
  deep.whole.registers = RegistersOf(context);
  deep.whole.base_avma = deep.whole.registers.value[Registers::kRsp] & ~uint64_t{7};
  deep.words.resize((deep.top_avma - deep.whole.base_avma) / 8);
  memcpy(deep.words.data(), reinterpret_cast<const void*>(deep.whole.base_avma), deep.words.size() * 8);
  deep.whole.words = deep.words.data();
  deep.whole.word_count = static_cast<uint32_t>(deep.words.size());
}

// What the agent keeps of `whole`: `inner_words` and `outer_words` of it.
StackCopy Ends(const StackCopy& whole, uint32_t inner_words, uint32_t outer_words) {
  std::vector<uint64_t> masks, kept;
  const auto add = [&](uint64_t begin_avma, uint32_t count) {
    const size_t first = masks.size();
    masks.resize(first + (count + 63) / 64);
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t word = whole.Read(begin_avma + 8ull * i).value();
      if (word == 0) continue;
      masks[first + i / 64] |= uint64_t{1} << (i % 64);
      kept.push_back(word);
    }
  };
  const uint64_t outer_base_avma = whole.end_avma() - 8ull * outer_words;
  add(whole.base_avma(), inner_words);
  add(outer_base_avma, outer_words);
  return StackCopy(whole.base_avma(), inner_words, std::move(masks), std::move(kept), outer_base_avma, outer_words);
}

TEST(Gap, IsCrossedInARealRecursionToTheFramesThatTheWholeStackHas) {
  deep.top_avma = OwnStackTop();
  for (const auto recurse : {RecurseByRbp, RecurseByRsp}) {
    recurse(1000, CaptureDeepStack);
    const auto map = OwnAddressMap();
    Unwinder unwinder;
    const StackCopy whole_copy = FilteredCopy(deep.whole, *map);
    const NativeStack whole = unwinder.Unwind(deep.whole.registers, whole_copy, false, *map);
    ASSERT_EQ(whole.end, StackEnd::kRoot);
    ASSERT_GT(whole.frames.size(), 2000u);
    // Wherever in a frame the outer end begins.
    for (uint32_t outer_words = 2000; outer_words < 2200; ++outer_words) {
      const StackCopy ends = Ends(whole_copy, 1000, outer_words);
      const NativeStack stack = unwinder.Unwind(deep.whole.registers, ends, true, *map);
      ASSERT_EQ(stack.end, StackEnd::kRoot) << outer_words;
      ASSERT_GT(stack.omitted_bytes, 0u);
      const auto pcs = Pcs(stack), whole_pcs = Pcs(whole);
      const auto gap = static_cast<ptrdiff_t>(stack.omitted_before);
      ASSERT_TRUE(std::equal(pcs.begin(), pcs.begin() + gap, whole_pcs.begin()));
      ASSERT_TRUE(std::equal(pcs.rbegin(), pcs.rend() - gap, whole_pcs.rbegin())) << outer_words;
      // All but the frame that lies across the begin of the outer end, with its return address or the rbp that it saved.
      const uint64_t first_cfa_avma = stack.frames[stack.omitted_before].cfa_avma;
      const auto in_whole = std::ranges::find(whole.frames, first_cfa_avma, &NativeFrame::cfa_avma);
      ASSERT_NE(in_whole, whole.frames.end());
      ASSERT_LE(std::prev(in_whole, 2)->cfa_avma, ends.outer_base_avma() + 8) << outer_words;
    }
  }
}

}  // namespace
}  // namespace stackd
