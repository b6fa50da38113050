#include "daemon/analyze/code/fault_instruction.h"

#include <gtest/gtest.h>

#include <vector>

namespace stackd {
namespace {

FaultInstruction Decode(const std::vector<uint8_t>& code) { return DecodeFaultInstruction(code); }

TEST(FaultInstruction, KnowsWhatStopsAProgram) {
  EXPECT_EQ(Decode({0xcc}), FaultInstruction::kBreakpoint);
  EXPECT_EQ(Decode({0x0f, 0x0b}), FaultInstruction::kTrap);
  EXPECT_EQ(Decode({0xf4}), FaultInstruction::kPrivileged) << "hlt";
  EXPECT_EQ(Decode({0x66, 0xed}), FaultInstruction::kPrivileged) << "in (%dx),%ax";
  EXPECT_EQ(Decode({0x0f, 0x22, 0xd8}), FaultInstruction::kPrivileged) << "mov %rax,%cr3";
}

TEST(FaultInstruction, KnowsWhereAnAddressIsJumpedTo) {
  EXPECT_EQ(Decode({0xc3}), FaultInstruction::kReturn);
  EXPECT_EQ(Decode({0xf3, 0xc3}), FaultInstruction::kReturn);
  EXPECT_EQ(Decode({0xff, 0xd0}), FaultInstruction::kJump) << "call *%rax";
  EXPECT_EQ(Decode({0x41, 0xff, 0xe0}), FaultInstruction::kJump) << "jmp *%r8";
  EXPECT_EQ(Decode({0xff, 0x10}), FaultInstruction::kOther) << "call *(%rax): it may be rax that is wrong";
  EXPECT_EQ(Decode({0xff}), FaultInstruction::kOther);
}

TEST(FaultInstruction, KnowsAccessesThatMustBeAligned) {
  EXPECT_EQ(Decode({0x0f, 0x29, 0x44, 0x24, 0x08}), FaultInstruction::kAligned) << "movaps %xmm0,8(%rsp)";
  EXPECT_EQ(Decode({0x44, 0x0f, 0x28, 0x07}), FaultInstruction::kAligned) << "movaps (%rdi),%xmm8";
  EXPECT_EQ(Decode({0x66, 0x0f, 0x6f, 0x07}), FaultInstruction::kAligned) << "movdqa (%rdi),%xmm0";
  EXPECT_EQ(Decode({0xc5, 0xfd, 0x6f, 0x07}), FaultInstruction::kAligned) << "vmovdqa (%rdi),%ymm0";
  EXPECT_EQ(Decode({0xc4, 0xc1, 0x7c, 0x28, 0x00}), FaultInstruction::kAligned) << "vmovaps (%r8),%ymm0";
}

TEST(FaultInstruction, LeavesAllOthersAlone) {
  EXPECT_EQ(Decode({0x48, 0x8b, 0x07}), FaultInstruction::kOther) << "mov (%rdi),%rax";
  EXPECT_EQ(Decode({0x0f, 0x10, 0x07}), FaultInstruction::kOther) << "movups (%rdi),%xmm0";
  EXPECT_EQ(Decode({0xf3, 0x0f, 0x6f, 0x07}), FaultInstruction::kOther) << "movdqu (%rdi),%xmm0";
  EXPECT_EQ(Decode({0xc5, 0xfe, 0x6f, 0x07}), FaultInstruction::kOther) << "vmovdqu (%rdi),%ymm0";
  EXPECT_EQ(Decode({}), FaultInstruction::kOther);
  EXPECT_EQ(Decode({0x66}), FaultInstruction::kOther);
  EXPECT_EQ(Decode({0x0f}), FaultInstruction::kOther);
  EXPECT_EQ(Decode({0xc5, 0xfd}), FaultInstruction::kOther);
  EXPECT_EQ(Decode({0xc4, 0xc1, 0x7c}), FaultInstruction::kOther);
}

}  // namespace
}  // namespace stackd
