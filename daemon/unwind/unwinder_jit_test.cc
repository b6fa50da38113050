// Code that no file describes, and a runtime that knows it.
#include <elf.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "daemon/unwind/stored_jit_frames.h"
#include "daemon/unwind/testing/synthetic_module.h"
#include "daemon/unwind/unwinder.h"

namespace stackd {
namespace {

constexpr uint64_t kBias = 0x7f0000000000;
constexpr uint64_t kStackBase = 0x7fff00000000;
constexpr uint64_t kLeaf = kBias + 0x1008;          // CFA = rsp + 8
constexpr uint64_t kByRbp = kBias + 0x1018;         // CFA = rbp + 16, rbp saved at CFA - 16
constexpr uint64_t kRootFunction = kBias + 0x1028;  // return address undefined
constexpr uint64_t kJitCode = kBias + 0x100100;

std::shared_ptr<const AddressMap> Map() {
  CfiBuilder cfi;
  const uint32_t cie = cfi.Cie();
  cfi.Fde(cie, 0x1000, 0x10, {});
  cfi.Fde(cie, 0x1010, 0x10, {0x0c, 6, 16, 0x86, 2});
  cfi.Fde(cie, 0x1020, 0x10, {0x07, 16});
  Mapping text{};
  text.start_avma = kBias + 0x1000;
  text.end_avma = kBias + 0x5000;
  text.file_offset = 0x1000;
  text.executable = true;
  text.module = SyntheticModule(".eh_frame", SHF_ALLOC, cfi.bytes(), std::vector<uint8_t>(0x1000));
  text.bias = kBias;
  Mapping jit{};
  jit.start_avma = kBias + 0x100000;
  jit.end_avma = kBias + 0x200000;
  jit.executable = true;
  return std::make_shared<const AddressMap>(std::vector<Mapping>{text, jit});
}

uint64_t Slot(uint64_t index) { return kStackBase + 8 * index; }

NativeStack Unwind(uint64_t rip, uint64_t rbp, const std::vector<uint64_t>& words, JitCode* jit) {
  Registers registers;
  registers.value[Registers::kRip] = rip;
  registers.value[Registers::kRsp] = Slot(0);
  registers.value[Registers::kRbp] = rbp;
  const StackCopy stack(kStackBase, static_cast<uint32_t>(words.size()), {(uint64_t{1} << words.size()) - 1}, words);
  return Unwinder().Unwind(registers, stack, /*copy_truncated=*/false, *Map(), jit);
}

std::vector<uint64_t> Pcs(const NativeStack& stack) {
  std::vector<uint64_t> pcs;
  for (const NativeFrame& frame : stack.frames) pcs.push_back(frame.pc_avma);
  return pcs;
}
using PcList = std::vector<uint64_t>;

TEST(UnwinderJit, GoesOnFromGeneratedCodeByWhatItsRuntimeSays) {
  // The generated frame takes three words and keeps no frame pointer; its caller needs rbp.
  const JitFrame known[] = {{.pc_avma = kJitCode, .sp_avma = Slot(1), .cfa_avma = Slot(4), .caller_rbp = Slot(5)}};
  StoredJitFrames jit(known);
  const auto stack = Unwind(kLeaf, 0xbad, {kJitCode, 1, 2, kByRbp, 3, Slot(0), kRootFunction}, &jit);
  EXPECT_EQ(Pcs(stack), (PcList{kLeaf, kJitCode, kByRbp, kRootFunction}));
  EXPECT_EQ(stack.end, StackEnd::kRoot);
  EXPECT_EQ(stack.frames[1].cfa_avma, Slot(4));
  EXPECT_EQ(stack.frames[1].origin, FrameOrigin::kCfi);
  EXPECT_EQ(stack.frames[2].origin, FrameOrigin::kRuntime);
  EXPECT_EQ(stack.frames[2].lookup_avma(), kByRbp - 1);
}

TEST(UnwinderJit, FollowsFramePointersWhereTheRuntimeKnowsNothing) {
  StoredJitFrames jit({});
  const auto stack = Unwind(kLeaf, Slot(2), {kJitCode, 1, 0, kRootFunction, 2}, &jit);
  EXPECT_EQ(Pcs(stack), (PcList{kLeaf, kJitCode, kRootFunction}));
  EXPECT_EQ(stack.frames[2].origin, FrameOrigin::kFramePointer);
}

TEST(UnwinderJit, IsNotAskedOfCodeThatAFileDescribes) {
  const JitFrame known[] = {{.pc_avma = kLeaf, .sp_avma = Slot(0), .cfa_avma = Slot(3), .caller_rbp = 0}};
  StoredJitFrames jit(known);
  EXPECT_EQ(Pcs(Unwind(kLeaf, 0, {kRootFunction, 1, kByRbp}, &jit)), (PcList{kLeaf, kRootFunction}));
}

// The innermost function lies on a stack of its runtime's, which is called by C on the thread's own, and that by the
// runtime.
TEST(UnwinderJit, ARuntimeMayOverrideWhatFilesSayAndLeadFromOneStackToAnother) {
  constexpr uint64_t kOwnBase = 0x100000;
  const JitFrame known[] = {
      {.pc_avma = kByRbp, .sp_avma = kOwnBase + 24, .cfa_avma = Slot(4), .caller_rbp = 0, .overrides = true},
      {.pc_avma = kLeaf, .sp_avma = Slot(1), .cfa_avma = kOwnBase + 8, .caller_rbp = kOwnBase + 8, .overrides = true}};
  StoredJitFrames jit(known);
  Registers registers;
  registers.value[Registers::kRip] = kLeaf;
  registers.value[Registers::kRsp] = Slot(1);
  // kLeaf's own words say that kRootFunction has called it, and kByRbp's that it has no caller.
  const std::vector<uint64_t> words = {0, kRootFunction, 0, kRootFunction, 0};
  const std::vector<uint64_t> own = {kByRbp, 0, kByRbp, 0};
  std::vector<uint64_t> both = words;
  both.insert(both.end(), own.begin(), own.end());
  const StackCopy stack(kStackBase, 5, {0x1f, 0xf}, both, kOwnBase, 4);
  const auto unwound = Unwinder().Unwind(registers, stack, false, *Map(), &jit);
  EXPECT_EQ(Pcs(unwound), (PcList{kLeaf, kByRbp, kByRbp, kRootFunction}));
  EXPECT_EQ(unwound.end, StackEnd::kRoot);
  EXPECT_EQ(unwound.frames[0].cfa_avma, kOwnBase + 8);
  EXPECT_EQ(unwound.frames[2].cfa_avma, Slot(4));
}

TEST(UnwinderJit, ARuntimeThatLeadsFromOneStackToAnotherForEverReachesTheLimit) {
  const JitFrame known[] = {
      {.pc_avma = kLeaf, .sp_avma = Slot(1), .cfa_avma = Slot(1), .caller_rbp = 0, .overrides = true}};
  StoredJitFrames jit(known);
  Registers registers;
  registers.value[Registers::kRip] = kLeaf;
  registers.value[Registers::kRsp] = Slot(1);
  const StackCopy stack(kStackBase, 2, {0x3}, {kLeaf, 0});
  EXPECT_EQ(Unwinder().Unwind(registers, stack, false, *Map(), &jit).end, StackEnd::kFrameLimit);
}

TEST(UnwinderJit, ARuntimeThatLeadsNowhereEndsTheStack) {
  const uint64_t cfa_avmas[] = {0, Slot(0), Slot(1), Slot(3) + 4, kStackBase + 0x10000, ~uint64_t{0}};
  for (uint64_t cfa_avma : cfa_avmas) {
    const JitFrame known[] = {{.pc_avma = kJitCode, .sp_avma = Slot(1), .cfa_avma = cfa_avma, .caller_rbp = 0}};
    StoredJitFrames jit(known);
    const auto stack = Unwind(kLeaf, Slot(2), {kJitCode, 1, 0, kRootFunction, 2}, &jit);
    EXPECT_EQ(Pcs(stack), (PcList{kLeaf, kJitCode})) << cfa_avma;
    EXPECT_NE(stack.end, StackEnd::kRoot) << cfa_avma;
  }
}

TEST(UnwinderJit, ARuntimeThatLeadsToDataEndsTheStack) {
  const JitFrame known[] = {{.pc_avma = kJitCode, .sp_avma = Slot(1), .cfa_avma = Slot(2), .caller_rbp = 0}};
  StoredJitFrames jit(known);
  EXPECT_EQ(Unwind(kLeaf, 0, {kJitCode, 0x1234, 0}, &jit).end, StackEnd::kBadReturnAddress);
}

TEST(StoredJitFrames, TellsFramesAtOneStackPointerApart) {
  const JitFrame known[] = {{.pc_avma = 1, .sp_avma = Slot(1), .cfa_avma = Slot(2), .caller_rbp = 0},
                            {.pc_avma = 2, .sp_avma = Slot(1), .cfa_avma = Slot(3), .caller_rbp = 0},
                            {.pc_avma = 2, .sp_avma = Slot(4), .cfa_avma = Slot(5), .caller_rbp = 0}};
  StoredJitFrames jit(known);
  const StackCopy stack;
  EXPECT_EQ(jit.FrameAt(2, Slot(1), 0, stack)->cfa_avma, Slot(3));
  EXPECT_EQ(jit.FrameAt(2, Slot(4), 0, stack)->cfa_avma, Slot(5));
  EXPECT_FALSE(jit.FrameAt(1, Slot(4), 0, stack).has_value());
  EXPECT_FALSE(jit.FrameAt(3, Slot(1), 0, stack).has_value());
}

}  // namespace
}  // namespace stackd
