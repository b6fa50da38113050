#include "daemon/unwind/x86_64/instruction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace stackd {
namespace {

using Kind = Instruction::Kind;

Kind KindOf(std::initializer_list<uint8_t> code) {
  const auto instruction = DecodeInstruction(std::vector<uint8_t>(code));
  EXPECT_TRUE(instruction && instruction->size_bytes == code.size());
  return instruction ? instruction->kind : Kind::kOther;
}

// A line of objdump -d -w: "  1139:\t48 83 ec 08          \tsub    $0x8,%rsp".
struct Line {
  std::vector<uint8_t> bytes;
  std::string text;
};

std::optional<Line> ParseLine(const std::string& line) {
  const size_t begin = line.find('\t'), end = line.find('\t', begin + 1);
  if (line[0] != ' ' || begin == std::string::npos || end == std::string::npos) return std::nullopt;
  Line result{{}, line.substr(end + 1)};
  for (size_t at = begin + 1; at + 1 < end && line[at] != ' '; at += 3) {
    result.bytes.push_back(static_cast<uint8_t>(std::stoi(line.substr(at, 2), nullptr, 16)));
  }
  return result;
}

// Instructions that stackd must know, by objdump's names.
const std::map<std::string, Kind> kKinds = {{"call", Kind::kCall}, {"ret", Kind::kReturn}, {"push", Kind::kPush},
                                            {"pop", Kind::kPop},   {"je", Kind::kBranch},  {"jne", Kind::kBranch},
                                            {"jb", Kind::kBranch}, {"ja", Kind::kBranch},  {"jle", Kind::kBranch},
                                            {"hlt", Kind::kEnd},   {"ud2", Kind::kEnd},    {"leave", Kind::kLosesStack}};

TEST(Instruction, EveryOneOfACLibraryIsAsLongAsObjdumpSays) {
  FILE* objdump = popen("objdump -d -w /lib/x86_64-linux-gnu/libc.so.6 2>&1", "r");
  ASSERT_NE(objdump, nullptr);
  int instructions = 0, moves_of_stack = 0;
  char text[1024];
  while (fgets(text, sizeof(text), objdump) != nullptr) {
    const auto line = ParseLine(text);
    if (!line || line->text.starts_with("(bad)")) continue;
    ++instructions;
    const auto instruction = DecodeInstruction(line->bytes);
    ASSERT_TRUE(instruction && instruction->size_bytes == line->bytes.size()) << text;
    const auto kind = kKinds.find(line->text.substr(0, line->text.find_first_of(" \n")));
    if (kind != kKinds.end()) {
      ASSERT_EQ(instruction->kind, kind->second) << text;
    } else if (line->text.find("%rsp\n") == std::string::npos && line->text.find("%esp\n") == std::string::npos) {
      ASSERT_NE(instruction->kind, Kind::kLosesStack) << text;
    }
    moves_of_stack += instruction->kind == Kind::kMoveStack;
  }
  EXPECT_EQ(pclose(objdump), 0) << "objdump is part of binutils";
  EXPECT_GT(instructions, 100'000);
  EXPECT_GT(moves_of_stack, 1000);
}

TEST(Instruction, SaysHowFarTheStackMoves) {
  const auto value_of = [](std::vector<uint8_t> code) { return DecodeInstruction(code)->value; };
  EXPECT_EQ(value_of({0x48, 0x83, 0xec, 0x18}), -0x18);                // sub $0x18,%rsp
  EXPECT_EQ(value_of({0x48, 0x81, 0xc4, 0x90, 0x01, 0, 0}), 0x190);    // add $0x190,%rsp
  EXPECT_EQ(value_of({0x48, 0x83, 0xec, 0x80}), 0x80);                 // sub $-0x80,%rsp
  EXPECT_EQ(value_of({0x48, 0x8d, 0x64, 0x24, 0xf8}), -8);             // lea -0x8(%rsp),%rsp
  EXPECT_EQ(value_of({0x48, 0x83, 0xe4, 0xc0}), 64);                   // and $-64,%rsp
  EXPECT_EQ(value_of({0x48, 0x81, 0xe4, 0, 0xf0, 0xff, 0xff}), 4096);  // and $-4096,%rsp
  EXPECT_EQ(value_of({0x55}), 5);                                      // push %rbp
  EXPECT_EQ(value_of({0x41, 0x5d}), 13);                               // pop %r13
}

TEST(Instruction, SaysWhereAJumpLeads) {
  const auto jump = DecodeInstruction(std::vector<uint8_t>{0xe9, 0xfb, 0xff, 0xff, 0xff});
  EXPECT_EQ(jump->kind, Kind::kJump);
  EXPECT_EQ(jump->value, -5);
  EXPECT_EQ(DecodeInstruction(std::vector<uint8_t>{0x75, 0x10})->value, 0x10);
}

TEST(Instruction, NoticesWhatElseChangesTheStackPointer) {
  EXPECT_EQ(KindOf({0x48, 0x89, 0xec}), Kind::kLosesStack);        // mov %rbp,%rsp
  EXPECT_EQ(KindOf({0x48, 0x8d, 0x65, 0xd8}), Kind::kLosesStack);  // lea -0x28(%rbp),%rsp
  EXPECT_EQ(KindOf({0x48, 0x83, 0xe4, 0xf0}), Kind::kAlignStack);  // and $-16,%rsp
  EXPECT_EQ(KindOf({0x48, 0x83, 0xe4, 0xe8}), Kind::kLosesStack);  // and $-24,%rsp
  EXPECT_EQ(KindOf({0x48, 0x83, 0xe4, 0x10}), Kind::kLosesStack);  // and $16,%rsp
  EXPECT_EQ(KindOf({0x48, 0x29, 0xc4}), Kind::kLosesStack);        // sub %rax,%rsp
  EXPECT_EQ(KindOf({0x5c}), Kind::kLosesStack);                    // pop %rsp
  EXPECT_EQ(KindOf({0x41, 0x5c}), Kind::kPop);                     // pop %r12
  EXPECT_EQ(KindOf({0x48, 0x89, 0xe5}), Kind::kOther);             // mov %rsp,%rbp
  EXPECT_EQ(KindOf({0x48, 0x83, 0xfc, 0x08}), Kind::kOther);       // cmp $8,%rsp
}

TEST(Instruction, WhatIsCutShortOrNoneIsRefused) {
  EXPECT_FALSE(DecodeInstruction({}));
  EXPECT_FALSE(DecodeInstruction(std::vector<uint8_t>{0xe8, 0, 0}));
  EXPECT_FALSE(DecodeInstruction(std::vector<uint8_t>{0x06}));
  EXPECT_FALSE(DecodeInstruction(std::vector<uint8_t>(64, 0x66)));
}

}  // namespace
}  // namespace stackd
