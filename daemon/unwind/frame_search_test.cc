// Frames of functions whose tables need rbp, in stacks of threads of which rip and rsp alone are known.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>

#include "daemon/unwind/direct_calls.h"
#include "daemon/unwind/testing/synthetic_module.h"
#include "daemon/unwind/unwinder.h"

namespace stackd {
namespace {

using testing::ElementsAre;

constexpr uint64_t kBias = 0x7f0000000000;
constexpr uint64_t kStackBase = 0x7fff00000000;

// Functions of the synthetic module, each 0x40 bytes long.
constexpr uint64_t kRootFunction = 0x1000;  // return address undefined; calls through a pointer, and kCaller
constexpr uint64_t kLeaf = 0x1040;          // CFA = rsp + 8
constexpr uint64_t kAligned = 0x1080;       // pushes rbp, aligns the stack to 64 bytes, has 64 more; its address is taken
constexpr uint64_t kByData = 0x10c0;        // pushes rbp, has a frame of any size; calls through a pointer, and itself
constexpr uint64_t kTwin = 0x1100;          // the same, which a jump leads to
constexpr uint64_t kNamed = 0x1140;         // the same, whose address is taken
constexpr uint64_t kStored = 0x1180;        // the same, to which data points
constexpr uint64_t kCaller = 0x11c0;        // CFA = rsp + 16, leaves rbp alone; calls each of these, the first one twice
constexpr uint64_t kKeepsRbp = 0x1200;      // pushes rbp, has 32 bytes; calls through a pointer
constexpr uint64_t kJumpsOut = 0x1240;      // ends in a jump through a pointer
constexpr uint64_t kData = 0x1280;
constexpr uint64_t kMadeCode = kBias + 0x100100;

class CodeBuilder {
 public:
  // Gives the address behind.
  uint64_t Put(uint64_t svma, std::initializer_list<uint8_t> bytes) {
    std::ranges::copy(bytes, code_.begin() + static_cast<ptrdiff_t>(svma - 0x1000));
    return svma + bytes.size();
  }
  // An instruction that ends with the distance from its end to `target_svma`.
  uint64_t PutWithDistance(uint64_t svma, std::initializer_list<uint8_t> opcode, uint64_t target_svma) {
    svma = Put(svma, opcode);
    return PutNumber(svma, target_svma - (svma + 4), 4);
  }
  uint64_t PutNumber(uint64_t svma, uint64_t number, int bytes) {
    for (int i = 0; i < bytes; ++i)
      code_[svma - 0x1000 + static_cast<uint64_t>(i)] = static_cast<uint8_t>(number >> (8 * i));
    return svma + static_cast<uint64_t>(bytes);
  }
  const std::vector<uint8_t>& code() const { return code_; }

 private:
  std::vector<uint8_t> code_ = std::vector<uint8_t>(0x400, 0x90);
};

// Where calls return to.
struct Returns {
  uint64_t root, root_to_caller, aligned, by_data, by_data_to_itself, keeps_rbp;
  std::vector<uint64_t> caller;  // of kAligned, kByData, kByData again, kTwin, kNamed, kStored, kJumpsOut
} returns;

constexpr std::initializer_list<uint8_t> kPrologue = {0x55, 0x48, 0x89, 0xe5};  // push %rbp; mov %rsp,%rbp
constexpr std::initializer_list<uint8_t> kCallPointer = {0xff, 0xd0};           // call *%rax
constexpr std::initializer_list<uint8_t> kLeave = {0xc9, 0xc3};                 // leave; ret
constexpr std::initializer_list<uint8_t> kSubRax = {0x48, 0x29, 0xc4};          // sub %rax,%rsp

void PutFunctionByData(CodeBuilder* code, uint64_t svma) {
  svma = code->Put(code->Put(code->Put(svma, kPrologue), kSubRax), kCallPointer);
  if (returns.by_data == 0) returns.by_data = kBias + svma;
  svma = code->PutWithDistance(svma, {0xe8}, kByData);
  if (returns.by_data_to_itself == 0) returns.by_data_to_itself = kBias + svma;
  code->Put(svma, kLeave);
}

std::vector<uint8_t> Code() {
  CodeBuilder code;
  returns = {};
  returns.root = kBias + code.Put(kRootFunction, kCallPointer);
  returns.root_to_caller = kBias + code.PutWithDistance(returns.root - kBias, {0xe8}, kCaller);
  code.Put(kLeaf, {0x90, 0xc3});
  uint64_t svma = code.Put(code.Put(kAligned, kPrologue), {0x48, 0x83, 0xe4, 0xc0, 0x48, 0x83, 0xec, 0x40});
  returns.aligned = kBias + code.Put(svma, kCallPointer);
  code.Put(returns.aligned - kBias, kLeave);
  for (uint64_t function_svma : {kByData, kTwin, kNamed, kStored}) PutFunctionByData(&code, function_svma);
  svma = code.Put(kCaller, {0x48, 0x83, 0xec, 0x08});
  for (uint64_t target_svma : {kAligned, kByData, kByData, kTwin, kNamed, kStored, kJumpsOut}) {
    svma = code.PutWithDistance(svma, {0xe8}, target_svma);
    returns.caller.push_back(kBias + svma);
  }
  code.Put(svma, {0x48, 0x83, 0xc4, 0x08, 0xc3});
  svma = code.Put(code.Put(kKeepsRbp, kPrologue), {0x48, 0x83, 0xec, 0x20});
  returns.keeps_rbp = kBias + code.Put(svma, kCallPointer);
  code.Put(returns.keeps_rbp - kBias, kLeave);
  code.Put(kJumpsOut, {0xff, 0xe0});
  svma = code.PutWithDistance(kData, {0xe9}, kTwin);
  svma = code.PutWithDistance(svma, {0x48, 0x8d, 0x05}, kAligned);
  svma = code.PutWithDistance(svma, {0x48, 0x8d, 0x05}, kNamed);
  code.PutNumber(svma + 3, kStored, 8);
  return code.code();
}

std::shared_ptr<const AddressMap> Map() {
  CfiBuilder cfi;
  const uint32_t cie = cfi.Cie();
  const CfiBuilder::Bytes by_rbp = {0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6};
  cfi.Fde(cie, kRootFunction, 0x40, {0x07, 16});
  cfi.Fde(cie, kLeaf, 0x40, {});
  for (uint64_t svma : {kAligned, kByData, kTwin, kNamed, kStored}) cfi.Fde(cie, svma, 0x40, by_rbp);
  cfi.Fde(cie, kCaller, 0x40, {0x44, 0x0e, 16});
  cfi.Fde(cie, kKeepsRbp, 0x40, by_rbp);
  cfi.Fde(cie, kJumpsOut, 0x40, {});
  Mapping text{};
  text.start_avma = kBias + 0x1000;
  text.end_avma = kBias + 0x5000;
  text.file_offset = 0x1000;
  text.executable = true;
  text.module = SyntheticModule(".eh_frame", SHF_ALLOC, cfi.bytes(), Code());
  text.bias = kBias;
  Mapping made{};
  made.start_avma = kBias + 0x100000;
  made.end_avma = kBias + 0x200000;
  made.executable = true;
  return std::make_shared<const AddressMap>(std::vector<Mapping>{text, made});
}

uint64_t Slot(uint64_t index) { return kStackBase + 8 * index; }

class FrameSearchTest : public testing::Test {
 protected:
  // rsp is at the first word.
  NativeStack Unwind(const std::vector<uint64_t>& words, bool truncated = false, uint64_t rip = kBias + kLeaf) {
    Registers registers;
    registers.value[Registers::kRip] = rip;
    registers.value[Registers::kRsp] = kStackBase;
    registers.value[Registers::kRbp] = rbp_;
    registers.known = KnownAsleep(registers);
    std::vector<uint64_t> masks((words.size() + 63) / 64);
    for (size_t i = 0; i < words.size(); ++i) masks[i / 64] |= uint64_t{1} << (i % 64);
    return unwinder_.Unwind(registers, StackCopy(kStackBase, static_cast<uint32_t>(words.size()), masks, words), truncated,
                            *map_);
  }
  void ExpectEndsBefore(const std::vector<uint64_t>& words, uint64_t last_pc, bool truncated = false) {
    const NativeStack stack = Unwind(words, truncated);
    EXPECT_EQ(stack.frames.back().pc_avma, last_pc);
    EXPECT_EQ(stack.frames.size(), 2u);
    EXPECT_EQ(stack.end, StackEnd::kUnknownRegister);
  }

  uint64_t rbp_ = 0;
  std::shared_ptr<const AddressMap> map_ = Map();
  Unwinder unwinder_;
};

std::vector<uint64_t> Pcs(const NativeStack& stack) {
  std::vector<uint64_t> pcs;
  for (const NativeFrame& frame : stack.frames) pcs.push_back(frame.pc_avma);
  return pcs;
}

// The leaf below kAligned, which has moved its stack down by so many words. 0x6e stands for data.
std::vector<uint64_t> AlignedStack(size_t moved_words) {
  std::vector<uint64_t> words = {returns.aligned};
  words.resize(1 + 8 + moved_words, 0x6e);
  for (uint64_t word : {uint64_t{0}, returns.caller[0], uint64_t{0x6e}, returns.root_to_caller}) words.push_back(word);
  return words;
}

TEST_F(FrameSearchTest, FindsTheFrameOfAFunctionThatAlignsItsStackHoweverFarItHadTo) {
  for (size_t moved_words = 0; moved_words < 8; ++moved_words) {
    const NativeStack stack = Unwind(AlignedStack(moved_words));
    EXPECT_THAT(Pcs(stack), ElementsAre(kBias + kLeaf, returns.aligned, returns.caller[0], returns.root_to_caller))
        << moved_words;
    EXPECT_EQ(stack.end, StackEnd::kRoot);
    EXPECT_EQ(stack.frames[2].origin, FrameOrigin::kSearch);
    EXPECT_EQ(stack.frames[1].cfa_avma, Slot(11 + moved_words));
  }
}

TEST_F(FrameSearchTest, DoesNotChooseBetweenTwoReturnAddressesWhereAFunctionAlignsItsStack) {
  for (size_t moved_words = 1; moved_words < 8; ++moved_words) {
    for (uint64_t decoy : {returns.caller[0], returns.root, returns.keeps_rbp, kMadeCode}) {
      std::vector<uint64_t> words = AlignedStack(moved_words);
      // Where the return address would be without that.
      words[10] = decoy;
      ExpectEndsBefore(words, returns.aligned);
    }
  }
  // A function farther out may have one where the frame would be if the stack had been moved farther.
  std::vector<uint64_t> words = AlignedStack(0);
  words[11] = returns.root;
  ExpectEndsBefore(words, returns.aligned);
}

TEST_F(FrameSearchTest, KnowsWhereAFunctionAlignsItsStackThatTheCallOfAnotherFunctionDidNotLeadThere) {
  for (uint64_t decoy : {returns.caller[1], returns.caller[2], returns.root_to_caller}) {
    std::vector<uint64_t> words = AlignedStack(1);
    words[10] = decoy;
    EXPECT_THAT(Pcs(Unwind(words)), ElementsAre(kBias + kLeaf, returns.aligned, returns.caller[0], returns.root_to_caller));
  }
  // It jumps elsewhere.
  std::vector<uint64_t> words = AlignedStack(1);
  words[10] = returns.caller[6];
  ExpectEndsBefore(words, returns.aligned);
}

TEST_F(FrameSearchTest, DoesNotLookForTheFrameBehindTheEndOfTheCopy) {
  std::vector<uint64_t> words = AlignedStack(4);
  words.resize(14);
  EXPECT_EQ(Unwind(words, true).end, StackEnd::kUnknownRegister);
}

// The leaf below a function with a frame of so much data, which is called by kCaller.
std::vector<uint64_t> StackByData(uint64_t pc, std::vector<uint64_t> data, uint64_t return_address) {
  std::vector<uint64_t> words = {pc};
  words.insert(words.end(), data.begin(), data.end());
  for (uint64_t word : {uint64_t{0}, return_address, uint64_t{0x6e}, returns.root}) words.push_back(word);
  return words;
}

TEST_F(FrameSearchTest, FindsTheFrameOfAFunctionByTheOneCallThatCanHaveLedThere) {
  for (size_t data_words : {0, 1, 7, 1000}) {
    const std::vector<uint64_t> data(data_words, 0x6e);
    const NativeStack stack = Unwind(StackByData(returns.by_data, data, returns.caller[1]));
    EXPECT_THAT(Pcs(stack), ElementsAre(kBias + kLeaf, returns.by_data, returns.caller[1], returns.root));
    EXPECT_EQ(stack.end, StackEnd::kRoot);
    EXPECT_EQ(stack.frames[2].origin, FrameOrigin::kSearch);
    EXPECT_EQ(stack.frames[1].cfa_avma, Slot(3 + data_words));
  }
}

TEST_F(FrameSearchTest, TakesTheFramePointerThatTheFunctionSaved) {
  // kByData is called by kByData, which needs rbp, and that by kCaller.
  const std::vector<uint64_t> words = {returns.by_data, 0x6e, Slot(5), returns.by_data_to_itself, 0x6e, 0, returns.root};
  const NativeStack stack = Unwind(words);
  EXPECT_THAT(Pcs(stack), ElementsAre(kBias + kLeaf, returns.by_data, returns.by_data_to_itself, returns.root));
}

TEST_F(FrameSearchTest, IsNotMisledByReturnAddressesOfOtherCalls) {
  const std::vector<uint64_t> data = {returns.caller[0], returns.root, Slot(9),  returns.caller[3], returns.keeps_rbp,
                                      kBias + kByData,   kMadeCode,    Slot(30), returns.caller[5], 0x6e};
  const NativeStack stack = Unwind(StackByData(returns.by_data, data, returns.caller[1]));
  EXPECT_THAT(Pcs(stack), ElementsAre(kBias + kLeaf, returns.by_data, returns.caller[1], returns.root));
}

TEST_F(FrameSearchTest, DoesNotChooseBetweenTwoCallsOfTheFunction) {
  // What a call that has returned left behind: of the same place, of another one, of the function by itself.
  for (uint64_t decoy : {returns.caller[1], returns.caller[2], returns.by_data_to_itself}) {
    // With a whole stack above that leads to the root.
    const std::vector<uint64_t> data = {Slot(6), decoy, 0x6e, returns.root, 0x6e};
    ExpectEndsBefore(StackByData(returns.by_data, data, returns.caller[1]), returns.by_data);
  }
  // Recursion.
  const std::vector<uint64_t> words = {returns.by_data,   0x6e, Slot(5),     returns.by_data_to_itself, 0x6e, 0,
                                       returns.caller[1], 0x6e, returns.root};
  ExpectEndsBefore(words, returns.by_data);
}

TEST_F(FrameSearchTest, DoesNotLookForAFunctionThatIsReachedInAnotherWay) {
  const std::vector<uint64_t> data(4, 0x6e);
  const uint64_t to_data = returns.by_data - (kBias + kByData);
  const uint64_t functions[] = {kTwin, kNamed, kStored};
  for (size_t i = 0; i < 3; ++i) {
    const uint64_t pc = kBias + functions[i] + to_data;
    ExpectEndsBefore(StackByData(pc, data, returns.caller[3 + i]), pc);
  }
}

TEST_F(FrameSearchTest, DoesNotLookForAFunctionWhoseCallMayNotBeInTheCopy) {
  ExpectEndsBefore(StackByData(returns.by_data, {0x6e}, returns.caller[1]), returns.by_data, /*truncated=*/true);
}

TEST_F(FrameSearchTest, SpendsABoundedTimeOnOneStack) {
  const std::vector<uint64_t> data(100'000, returns.caller[0]);
  ExpectEndsBefore(StackByData(returns.by_data, data, returns.caller[1]), returns.by_data);
}

TEST_F(FrameSearchTest, KnowsFramesThatMadeCodeLeavesOut) {
  // kKeepsRbp has called made code without a frame pointer, which has called the leaf.
  const std::vector<uint64_t> words = {kMadeCode, 0x6e, kMadeCode, 0x6e, returns.keeps_rbp, 0x6e,
                                       0x6e,      0x6e, 0x6e,      0,    returns.root};
  rbp_ = Slot(9);
  const NativeStack stack = Unwind(words);
  EXPECT_THAT(Pcs(stack), ElementsAre(kBias + kLeaf, kMadeCode));
  EXPECT_EQ(stack.end, StackEnd::kNoUnwindInfo);
}

TEST_F(FrameSearchTest, KnowsFramesThatMadeCodeLeavesOutBelowAFunctionWithoutAFramePointer) {
  // Between them stands kCaller.
  const std::vector<uint64_t> words = {kMadeCode, returns.caller[5], 0x6e, returns.keeps_rbp, 0x6e, 0x6e, 0x6e, 0x6e,
                                       0,         returns.root};
  rbp_ = Slot(8);
  EXPECT_THAT(Pcs(Unwind(words)), ElementsAre(kBias + kLeaf, kMadeCode));
}

TEST_F(FrameSearchTest, KnowsThatACallOfAnotherFunctionIsNotThatOfMadeCode) {
  const std::vector<uint64_t> words = {kMadeCode, 0x6e, 0, returns.caller[0], 0x6e, returns.root};
  rbp_ = Slot(2);
  const NativeStack stack = Unwind(words);
  EXPECT_THAT(Pcs(stack), ElementsAre(kBias + kLeaf, kMadeCode));
  EXPECT_EQ(stack.end, StackEnd::kNoUnwindInfo);
}

TEST_F(FrameSearchTest, FollowsFramePointersToTheCallOfAFunctionThatJumpsToMadeCode) {
  const std::vector<uint64_t> words = {kMadeCode, 0x6e, 0, returns.caller[6], 0x6e, returns.root};
  rbp_ = Slot(2);
  EXPECT_THAT(Pcs(Unwind(words)), ElementsAre(kBias + kLeaf, kMadeCode, returns.caller[6], returns.root));
}

TEST_F(FrameSearchTest, FollowsFramePointersOfMadeCodeOverWhatCallsLeftThere) {
  // The frame that kKeepsRbp once had there was another one: it ended elsewhere.
  const std::vector<uint64_t> words = {kMadeCode, 0x6e, returns.keeps_rbp, 0x6e, 0x6e, 0x6e, 0x6e, 0x6e, 0, returns.root};
  rbp_ = Slot(8);
  const NativeStack stack = Unwind(words);
  EXPECT_THAT(Pcs(stack), ElementsAre(kBias + kLeaf, kMadeCode, returns.root));
  EXPECT_EQ(stack.end, StackEnd::kRoot);
}

}  // namespace
}  // namespace stackd
