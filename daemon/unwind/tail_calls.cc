#include "daemon/unwind/tail_calls.h"

#include <span>

#include "daemon/unwind/x86_64/instruction.h"

namespace stackd {
namespace {

constexpr uint64_t kMaxFunctionBytes = 64 << 10;

}  // namespace

bool MayJumpOut(const Module& module, uint64_t begin_svma, uint64_t end_svma) {
  const uint64_t size_bytes = end_svma - begin_svma;
  const auto position = module.SvmaToPosition(begin_svma);
  if (!position || size_bytes > kMaxFunctionBytes) return true;
  const auto code = module.Read(*position, size_bytes);
  if (!code) return true;
  for (size_t at = 0; at < code->size();) {
    const auto instruction = DecodeInstruction(std::span(*code).subspan(at));
    if (!instruction) return true;
    at += instruction->size_bytes;
    const bool jumps = instruction->kind == Instruction::Kind::kJump || instruction->kind == Instruction::Kind::kBranch;
    const uint64_t target = at + static_cast<uint64_t>(int64_t{instruction->value});
    if (instruction->kind == Instruction::Kind::kIndirectJump || (jumps && target >= code->size())) return true;
    // A function that calls into its own middle returns to where it wants (a "retpoline").
    const bool calls = instruction->kind == Instruction::Kind::kCall && instruction->value != 0;
    if (calls && target != 0 && target < code->size()) return true;
  }
  return false;
}

}  // namespace stackd
