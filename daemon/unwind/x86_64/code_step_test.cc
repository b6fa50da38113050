#include "daemon/unwind/x86_64/code_step.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <span>
#include <utility>

#include "daemon/unwind/unwind_table_cache.h"
#include "daemon/unwind/x86_64/instruction.h"

namespace stackd {
namespace {

std::shared_ptr<const Module> OpenModule(const char* path) {
  auto module = Module::Open(Fd(open(path, O_RDONLY | O_CLOEXEC)), path);
  EXPECT_TRUE(module) << path;
  return module ? *module : nullptr;
}

// Calls `visit` with the address behind each call in the section.
void ForEachReturnAddress(const Module& module, const Section& text, const std::function<void(uint64_t svma)>& visit) {
  const auto code = module.Read(text.file_offset, text.size_bytes);
  ASSERT_TRUE(code);
  bool was_call = false;
  for (size_t at = 0; at < code->size();) {
    const uint64_t svma = text.svma + at;
    const auto instruction = DecodeInstruction(std::span(*code).subspan(at));
    at += instruction ? instruction->size_bytes : 1;
    if (std::exchange(was_call, instruction && instruction->kind == Instruction::Kind::kCall)) visit(svma);
  }
}

// The unwind tables know where the frames of this library are; the code must say the same.
TEST(CodeSteps, AgreeWithTheUnwindTablesOfACLibrary) {
  const auto module = OpenModule("/lib/x86_64-linux-gnu/libc.so.6");
  ASSERT_NE(module, nullptr);
  const Section* text = module->FindSection(".text");
  ASSERT_NE(text, nullptr);
  const auto table = UnwindTableCache(64 << 20).Get(*module);
  ASSERT_NE(table, nullptr);
  CodeSteps steps;
  int asked = 0, to_return = 0, wrong_to_return = 0, from_begin = 0, wrong_from_begin = 0;
  ForEachReturnAddress(*module, *text, [&](uint64_t svma) {
    const UnwindRule rule = table->Find(svma - 1);
    if (rule.kind != RuleKind::kRsp) return;
    ++asked;
    steps.StartStack();
    const auto step = steps.Find(*module, svma, svma - 1);
    if (!step) return;
    int& count = step->begin_svma ? from_begin : to_return;
    int& wrong = step->begin_svma ? wrong_from_begin : wrong_to_return;
    ++count;
    wrong += step->cfa_offset != rule.cfa_offset;
  });
  printf("%d calls: by returns %d, %d of them wrong; from the begin %d, %d of them wrong\n", asked, to_return,
         wrong_to_return, from_begin, wrong_from_begin);
  EXPECT_GT(to_return, asked * 3 / 4);
  // Wrong where a function ends with a call that does not return, and another begins right after it. The word in the place
  // of the return address is none there.
  EXPECT_LT(wrong_to_return, to_return / 100);
  // These must be the function that their caller calls.
  EXPECT_LT(wrong_from_begin, from_begin / 4);
}

// Where a table knows the frame by the stack pointer, the code must say the same, or nothing.
TEST(CodeSteps, FindFramesFromTheBeginOfAFunctionAsUnwindTablesDo) {
  for (const char* path : {"/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/bin/bash"}) {
    const auto module = OpenModule(path);
    ASSERT_NE(module, nullptr);
    const Section* text = module->FindSection(".text");
    ASSERT_NE(text, nullptr);
    const auto table = UnwindTableCache(64 << 20).Get(*module);
    ASSERT_NE(table, nullptr);
    CodeSteps steps;
    int asked = 0, found = 0, wrong = 0;
    ForEachReturnAddress(*module, *text, [&](uint64_t svma) {
      const UnwindRule rule = table->Find(svma - 1);
      const auto function = table->FunctionAt(svma - 1);
      if (rule.kind != RuleKind::kRsp || !function) return;
      const UnwindRule at_begin = table->Find(function->begin_svma);
      if (at_begin.kind != RuleKind::kRsp || at_begin.cfa_offset != 8) return;
      ++asked;
      steps.StartStack();
      // As if the body of the function had its frame by another register.
      const auto by_table = [&](uint64_t at_svma) -> std::optional<int32_t> {
        const UnwindRule rule_there = table->Find(at_svma);
        const bool is_told = rule_there.kind == RuleKind::kRsp && at_svma < function->begin_svma + 8;
        return is_told ? std::optional(rule_there.cfa_offset) : std::nullopt;
      };
      const auto offsets = steps.FindCfaOffsets(*module, function->begin_svma, function->end_svma, svma, by_table);
      found += offsets.has_value();
      if (!offsets || (offsets->nearest == rule.cfa_offset && offsets->farthest == rule.cfa_offset)) return;
      if (++wrong < 10) printf("%#lx: %d to %d, not %d\n", svma, offsets->nearest, offsets->farthest, rule.cfa_offset);
    });
    printf("%s: %d of %d, %d wrong\n", path, found, asked, wrong);
    EXPECT_GT(found, asked * 9 / 10);
    EXPECT_EQ(wrong, 0);
  }
}

TEST(CodeSteps, SpendABoundedTimeOnOneStack) {
  const auto module = OpenModule("/lib/x86_64-linux-gnu/libc.so.6");
  ASSERT_NE(module, nullptr);
  const Section* text = module->FindSection(".text");
  ASSERT_NE(text, nullptr);
  CodeSteps steps;
  const auto found_in = [&](uint64_t begin_svma, uint64_t size_bytes) {
    int found = 0;
    for (uint64_t svma = begin_svma; svma < begin_svma + size_bytes; ++svma)
      found += steps.Find(*module, svma, svma).has_value();
    return found;
  };
  const uint64_t half_bytes = text->size_bytes / 2;
  EXPECT_GT(found_in(text->svma, half_bytes), 100);
  EXPECT_EQ(found_in(text->svma + half_bytes, half_bytes), 0);
  steps.StartStack();
  EXPECT_GT(found_in(text->svma + half_bytes, half_bytes), 100);
}

}  // namespace
}  // namespace stackd
