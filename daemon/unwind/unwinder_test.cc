#include "daemon/unwind/unwinder.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "daemon/unwind/testing/synthetic_module.h"

namespace stackd {
namespace {

// The synthetic module is mapped here; each function below takes 0x10 bytes of it.
constexpr uint64_t kBias = 0x7f0000000000;
constexpr uint64_t kStackBase = 0x7fff00000000;

constexpr uint64_t kLeaf = 0x1000;          // CFA = rsp + 8
constexpr uint64_t kFrame32 = 0x1010;       // CFA = rsp + 32, rbp saved at CFA - 16
constexpr uint64_t kByRbp = 0x1020;         // CFA = rbp + 16, rbp saved at CFA - 16
constexpr uint64_t kRootFunction = 0x1030;  // return address undefined
constexpr uint64_t kByRbx = 0x1040;         // CFA = rbx + 8
constexpr uint64_t kSavesRbx = 0x1050;      // CFA = rsp + 24, rbx saved at CFA - 16
constexpr uint64_t kNoAdvance = 0x1060;     // CFA = rsp
constexpr uint64_t kBadCfi = 0x1070;        // makes no sense
constexpr uint64_t kEndlessExpression = 0x1080;
constexpr uint64_t kLostReturnAddress = 0x1090;  // CFA = rsp + 8, return address in rbx
constexpr uint64_t kRedZone = 0x10a0;            // CFA = *(rbp - 8)
constexpr uint64_t kSignalReturn = 0x10b0;       // signal frame: rip and rsp, rbp at rsp + 0, 8, 16
constexpr uint64_t kEpilogue = 0x10d0;           // CFA = rsp + 8, rbp saved at CFA - 16
constexpr uint64_t kNoCfi = 0x2000;              // up to the end
constexpr uint64_t kMuslRestore = 0x2010;        // mov $15, %rax; syscall
constexpr uint64_t kMuslThread = 0x2020;         // behind the call of a thread's function
constexpr uint64_t kMuslStart = 0x2056;          // behind the call of the program's

std::shared_ptr<const AddressMap> Map() {
  CfiBuilder cfi;
  uint32_t cie = cfi.Cie();
  cfi.Fde(cie, kLeaf, 0x10, {});
  cfi.Fde(cie, kFrame32, 0x10, {0x0e, 32, 0x86, 2});
  cfi.Fde(cie, kByRbp, 0x10, {0x0c, 6, 16, 0x86, 2});
  cfi.Fde(cie, kRootFunction, 0x10, {0x07, 16});
  cfi.Fde(cie, kByRbx, 0x10, {0x0c, 3, 8});
  cfi.Fde(cie, kSavesRbx, 0x10, {0x0e, 24, 0x83, 2});
  cfi.Fde(cie, kNoAdvance, 0x10, {0x0e, 0});
  cfi.Fde(cie, kBadCfi, 0x10, {0x3f});
  cfi.Fde(cie, kEndlessExpression, 0x10, {0x0f, 3, 0x2f, 0xfd, 0xff});
  cfi.Fde(cie, kLostReturnAddress, 0x10, {0x09, 16, 3});
  cfi.Fde(cie, kRedZone, 0xf, {0x0f, 3, 0x76, 0x78, 0x06});
  cfi.Fde(cie, kEpilogue, 0x10, {0x86, 2});
  cfi.Fde(cfi.Cie("zRS"), kSignalReturn - 1, 0x10,
          {0x0f, 2, 0x77, 0x00, 0x10, 16, 2, 0x77, 0x00, 0x10, 7, 2, 0x77, 0x08, 0x10, 6, 2, 0x77, 0x10});
  constexpr uint8_t kSigreturn[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
  constexpr uint8_t kExit[] = {0x89, 0xc7, 0x31, 0xc0, 0xb0, 0x3c, 0x0f, 0x05, 0xf4};
  constexpr uint8_t kStart[] = {0x48, 0x31, 0xed, 0x48, 0x89, 0xe7, 0x48, 0x8d, 0x35, 0, 0,
                                0,    0,    0x48, 0x83, 0xe4, 0xf0, 0xe8, 0,    0,    0, 0};
  std::vector<uint8_t> code(kMuslStart - 0x1000);
  std::ranges::copy(kSigreturn, code.begin() + (kMuslRestore - 0x1000));
  std::ranges::copy(kExit, code.begin() + (kMuslThread - 0x1000));
  std::ranges::copy(kStart, code.end() - sizeof(kStart));
  // In().
  for (uint64_t function_svma = kLeaf; function_svma < kNoCfi; function_svma += 0x10)
    code[function_svma - 0x1000 + 3] = 0xe8;
  Mapping text{};
  text.start_avma = kBias + 0x1000;
  text.end_avma = kBias + 0x5000;
  text.file_offset = 0x1000;
  text.executable = true;
  text.module = SyntheticModule(".eh_frame", SHF_ALLOC, cfi.bytes(), code);
  text.bias = kBias;
  Mapping data = text;
  data.start_avma = kBias + 0x5000;
  data.end_avma = kBias + 0x6000;
  data.executable = false;
  Mapping jit{};
  jit.start_avma = kBias + 0x100000;
  jit.end_avma = kBias + 0x200000;
  jit.executable = true;
  return std::make_shared<const AddressMap>(std::vector<Mapping>{text, data, jit});
}

// The address after a call in the middle of a function.
uint64_t In(uint64_t function_svma) { return kBias + function_svma + 8; }
constexpr uint64_t kJitCode = kBias + 0x100100;

uint64_t Slot(uint64_t index) { return kStackBase + 8 * index; }

StackCopy Stack(const std::vector<uint64_t>& words) {
  std::vector<uint64_t> masks((words.size() + 63) / 64);
  for (size_t i = 0; i < words.size(); ++i) masks[i / 64] |= uint64_t{1} << (i % 64);
  return StackCopy(kStackBase, static_cast<uint32_t>(words.size()), masks, words);
}

class UnwinderTest : public testing::Test {
 protected:
  // rsp is at the third word: two are the red zone.
  NativeStack Unwind(uint64_t rip, const std::vector<uint64_t>& words, bool truncated = false) {
    registers_.value[Registers::kRip] = rip;
    registers_.value[Registers::kRsp] = Slot(2);
    return unwinder_.Unwind(registers_, Stack(words), truncated, *map_);
  }

  void SetRbp(uint64_t rbp) { registers_.value[Registers::kRbp] = rbp; }
  void SetRbx(uint64_t rbx) { registers_.value[3] = rbx; }

  std::shared_ptr<const AddressMap> map_ = Map();
  Unwinder unwinder_;
  Registers registers_;
};

std::vector<uint64_t> Pcs(const NativeStack& stack) {
  std::vector<uint64_t> pcs;
  for (const NativeFrame& frame : stack.frames) pcs.push_back(frame.pc_avma);
  return pcs;
}
using PcList = std::vector<uint64_t>;

TEST_F(UnwinderTest, WalksToTheFirstFunctionOfAThread) {
  auto stack = Unwind(In(kLeaf), {0, 0, In(kFrame32), 1, 2, 3, In(kRootFunction), 4});
  EXPECT_EQ(Pcs(stack), (PcList{In(kLeaf), In(kFrame32), In(kRootFunction)}));
  EXPECT_EQ(stack.end, StackEnd::kRoot);
  EXPECT_EQ(stack.frames[0].origin, FrameOrigin::kRegisters);
  EXPECT_EQ(stack.frames[0].cfa_avma, Slot(3));
  EXPECT_EQ(stack.frames[1].origin, FrameOrigin::kCfi);
  EXPECT_EQ(stack.frames[1].cfa_avma, Slot(7));
  EXPECT_EQ(stack.frames[1].lookup_avma(), In(kFrame32) - 1);
}

TEST_F(UnwinderTest, LooksUpTheCallAndNotWhatStandsBehindIt) {
  // The return address is the next function's first byte: the call was the last instruction of kFrame32.
  auto stack = Unwind(In(kLeaf), {0, 0, kBias + kByRbp, 1, 2, 3, In(kRootFunction)});
  EXPECT_EQ(Pcs(stack), (PcList{In(kLeaf), kBias + kByRbp, In(kRootFunction)}));
  // But an interrupted function is where it is.
  SetRbp(Slot(4));
  stack = Unwind(kBias + kByRbp, {0, 0, 1, 2, 3, In(kRootFunction)});
  EXPECT_EQ(Pcs(stack), (PcList{kBias + kByRbp, In(kRootFunction)}));
}

TEST_F(UnwinderTest, RestoresTheFramePointerOfCallers) {
  auto stack = Unwind(In(kFrame32), {0, 0, 1, 2, Slot(7), In(kByRbp), 3, 4, In(kRootFunction)});
  EXPECT_EQ(Pcs(stack), (PcList{In(kFrame32), In(kByRbp), In(kRootFunction)}));
  EXPECT_EQ(stack.frames[1].cfa_avma, Slot(9));
}

TEST_F(UnwinderTest, KeepsTheFramePointerIfItsSlotWasPopped) {
  // Interrupted in the epilogue of a function whose CFI still says: rbp saved at CFA - 16, which is below rsp by now.
  SetRbp(Slot(4));
  auto stack = Unwind(In(kEpilogue), {0, 0xbad, In(kByRbp), 1, 2, In(kRootFunction)});
  EXPECT_EQ(Pcs(stack), (PcList{In(kEpilogue), In(kByRbp), In(kRootFunction)}));
}

TEST_F(UnwinderTest, ReadsTheRedZone) {
  SetRbp(Slot(2));
  auto stack = Unwind(In(kRedZone), {0, Slot(4), 1, In(kRootFunction)});
  EXPECT_EQ(Pcs(stack), (PcList{In(kRedZone), In(kRootFunction)}));
}

TEST_F(UnwinderTest, TakesAnyRegisterInTheInterruptedFunction) {
  SetRbx(Slot(4));
  auto stack = Unwind(In(kByRbx), {0, 0, 1, 2, In(kRootFunction)});
  EXPECT_EQ(Pcs(stack), (PcList{In(kByRbx), In(kRootFunction)}));
  EXPECT_EQ(stack.end, StackEnd::kRoot);
}

TEST_F(UnwinderTest, WalksAgainWithAllRegistersIfACallerNeedsOne) {
  SetRbx(0xbad);
  auto stack = Unwind(In(kSavesRbx), {0, 0, 1, Slot(7), In(kByRbx), 2, 3, In(kFrame32), 4, 5, 6, In(kRootFunction)});
  EXPECT_EQ(Pcs(stack), (PcList{In(kSavesRbx), In(kByRbx), In(kFrame32), In(kRootFunction)}));
  EXPECT_EQ(stack.end, StackEnd::kRoot);
  stack = Unwind(In(kSavesRbx), {0, 0, 1, In(kFrame32), In(kLostReturnAddress), 4, 5, 6, 7, In(kRootFunction)});
  EXPECT_EQ(Pcs(stack), (PcList{In(kSavesRbx), In(kLostReturnAddress), In(kFrame32), In(kRootFunction)}));
}

TEST_F(UnwinderTest, FindsTheInterruptedFunctionBelowASignalHandler) {
  SetRbp(Slot(2));
  // The handler's frame, then what the signal frame says: rip, rsp, rbp.
  auto stack =
      Unwind(In(kLeaf), {0, 0, kBias + kSignalReturn, kBias + kByRbp, Slot(6), Slot(8), 1, 2, 3, In(kRootFunction)});
  ASSERT_EQ(Pcs(stack), (PcList{In(kLeaf), kBias + kSignalReturn, kBias + kByRbp, In(kRootFunction)}));
  EXPECT_EQ(stack.frames[2].origin, FrameOrigin::kSignalFrame);
  EXPECT_EQ(stack.frames[2].lookup_avma(), kBias + kByRbp);
  EXPECT_EQ(stack.end, StackEnd::kRoot);
}

TEST_F(UnwinderTest, KnowsASignalFrameWithoutCfiByItsCode) {
  std::vector<uint64_t> words(3 + 5 + 17);
  words[2] = kBias + kMuslRestore;
  words[3 + 5 + 10] = Slot(26);        // rbp
  words[3 + 5 + 15] = Slot(25);        // rsp
  words[3 + 5 + 16] = kBias + kByRbp;  // rip
  for (uint64_t word : {uint64_t{1}, uint64_t{2}, In(kRootFunction)}) words.push_back(word);
  auto stack = Unwind(In(kLeaf), words);
  ASSERT_EQ(Pcs(stack), (PcList{In(kLeaf), kBias + kMuslRestore, kBias + kByRbp, In(kRootFunction)}));
  EXPECT_EQ(stack.frames[2].origin, FrameOrigin::kSignalFrame);
}

TEST_F(UnwinderTest, KnowsTheFirstFunctionWithoutCfiByItsCode) {
  // Above it lies what looks like a return address.
  for (uint64_t pc : {kBias + kMuslThread, kBias + kMuslStart}) {
    auto stack = Unwind(In(kLeaf), {0, 0, pc, 0, In(kLeaf), In(kFrame32)});
    EXPECT_EQ(Pcs(stack), (PcList{In(kLeaf), pc}));
    EXPECT_EQ(stack.end, StackEnd::kRoot);
  }
}

TEST_F(UnwinderTest, FollowsFramePointersWhereThereIsNoCfi) {
  for (uint64_t pc : {In(kNoCfi), kJitCode, In(kBadCfi)}) {
    SetRbp(Slot(3));
    auto stack = Unwind(pc, {0, 0, 1, Slot(6), pc, 2, 0, In(kRootFunction)});
    EXPECT_EQ(Pcs(stack), (PcList{pc, pc, In(kRootFunction)}));
    EXPECT_EQ(stack.end, StackEnd::kRoot);
    EXPECT_EQ(stack.frames[1].origin, FrameOrigin::kFramePointer);
    EXPECT_EQ(stack.frames[2].origin, FrameOrigin::kFramePointer);
    EXPECT_EQ(stack.frames[1].cfa_avma, Slot(8));
  }
}

TEST_F(UnwinderTest, InventsNoFramesFromWhatIsNoFramePointer) {
  const std::vector<uint64_t> words = {Slot(3), In(kLeaf), 1, 2, In(kLeaf), In(kLeaf), 0x1234, 0x1234};
  for (uint64_t rbp : {uint64_t{0}, Slot(0), Slot(2) + 4, Slot(7), Slot(6), Slot(100), uint64_t{0x1234}}) {
    SetRbp(rbp);
    auto stack = Unwind(kJitCode, words);
    EXPECT_EQ(Pcs(stack), PcList{kJitCode}) << std::hex << rbp;
    EXPECT_EQ(stack.end, StackEnd::kNoUnwindInfo);
  }
}

TEST_F(UnwinderTest, TakesAZeroFramePointerForTheRootOnlyIfNoCodeIsAbove) {
  SetRbp(Slot(3));
  EXPECT_EQ(Unwind(kJitCode, {0, 0, 1, 0, kJitCode, 5, 6}).end, StackEnd::kRoot);
  EXPECT_EQ(Unwind(kJitCode, {0, 0, 1, 0, kJitCode, 5, In(kLeaf)}).end, StackEnd::kNoUnwindInfo);
  EXPECT_EQ(Unwind(kJitCode, {0, 0, 1, 0, kJitCode, 5, kBias + kLeaf}).end, StackEnd::kRoot) << "no call leads there";
  EXPECT_EQ(Unwind(kJitCode, {0, 0, 1, 0, kJitCode, 5, 6}, /*truncated=*/true).end, StackEnd::kNoUnwindInfo);
  EXPECT_EQ(Unwind(kJitCode, {0, 0, 1, 0, 0, 5, 6}).end, StackEnd::kNoUnwindInfo) << "nothing was found at all";
}

TEST_F(UnwinderTest, NamesHowAStackEnded) {
  EXPECT_EQ(Unwind(In(kLeaf), {0, 0, 0, 1, 2}).end, StackEnd::kRoot);
  EXPECT_EQ(Unwind(In(kLeaf), {0, 0, 0, 1, In(kLeaf)}).end, StackEnd::kBadReturnAddress) << "filtered out, not the root";
  EXPECT_EQ(Unwind(In(kLeaf), {0, 0, 0x1234, 1}).end, StackEnd::kBadReturnAddress);
  EXPECT_EQ(Unwind(In(kLeaf), {0, 0, kBias + 0x5008, 1}).end, StackEnd::kBadReturnAddress) << "data";
  EXPECT_EQ(Unwind(In(kFrame32), {0, 0, 0, 0}).end, StackEnd::kUnreadable);
  EXPECT_EQ(Unwind(In(kFrame32), {0, 0, 0, 0}, /*truncated=*/true).end, StackEnd::kTruncated);
  EXPECT_EQ(Unwind(In(kNoAdvance), {0, In(kLeaf), 0, 0}).end, StackEnd::kNoProgress);
  EXPECT_EQ(Unwind(In(kEndlessExpression), {0, 0, 0, 0}).end, StackEnd::kNoUnwindInfo);
  SetRbp(0);
  EXPECT_EQ(Unwind(In(kByRbp), {0, 0, 0, 0}, /*truncated=*/true).end, StackEnd::kUnreadable) << "below the copy, not above";
}

TEST_F(UnwinderTest, StopsAtTheFrameLimit) {
  auto stack = Unwind(In(kLeaf), std::vector<uint64_t>(2 * kMaxFrames, In(kLeaf)));
  EXPECT_EQ(stack.frames.size(), static_cast<size_t>(kMaxFrames));
  EXPECT_EQ(stack.end, StackEnd::kFrameLimit);
}

TEST_F(UnwinderTest, FindsTheCallerOfACallToNowhere) {
  for (uint64_t pc : {uint64_t{0}, kBias + 0x5008, ~uint64_t{0}}) {
    auto stack = Unwind(pc, {0, 0, In(kFrame32), 1, 2, 3, In(kRootFunction)});
    EXPECT_EQ(Pcs(stack), (PcList{pc, In(kFrame32), In(kRootFunction)}));
  }
  EXPECT_EQ(Unwind(0, {0, 0, 0x1234}).end, StackEnd::kBadReturnAddress);
  EXPECT_EQ(Unwind(0, {}).end, StackEnd::kUnreadable);
}

TEST_F(UnwinderTest, TellsOneAddressMapFromAnother) {
  const std::vector<uint64_t> words = {0, 0, In(kRootFunction)};
  EXPECT_EQ(Unwind(In(kLeaf), words).end, StackEnd::kRoot);
  auto first_map = map_;
  map_ = std::make_shared<const AddressMap>(std::vector<Mapping>{});
  EXPECT_EQ(Unwind(In(kLeaf), words).end, StackEnd::kBadReturnAddress);
  map_ = first_map;
  EXPECT_EQ(Unwind(In(kLeaf), words).end, StackEnd::kRoot);
}

}  // namespace
}  // namespace stackd
