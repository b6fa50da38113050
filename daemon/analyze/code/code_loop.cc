#include "daemon/analyze/code/code_loop.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "daemon/unwind/x86_64/code_bytes.h"
#include "daemon/unwind/x86_64/instruction.h"

namespace stackd {
namespace {

// A hostile file has code of any shape.
constexpr int kMaxInstructions = 4000;
constexpr uint32_t kChunkBytes = 64;

// Decodes one instruction after the other, and reads code in pieces.
class CodeReader {
 public:
  explicit CodeReader(const AddressMap& map) : map_(map) {}

  std::optional<Instruction> At(uint64_t avma) {
    for (uint32_t wanted : {kChunkBytes, static_cast<uint32_t>(kMaxInstructionBytes), 1u}) {
      if (auto instruction = DecodeInPiece(avma)) return instruction;
      const auto code = ReadCode(map_, avma, wanted);
      if (!code) continue;
      start_avma_ = avma;
      code_ = *code;
    }
    return DecodeInPiece(avma);
  }

 private:
  std::optional<Instruction> DecodeInPiece(uint64_t avma) const {
    if (avma < start_avma_ || avma - start_avma_ >= code_.size()) return std::nullopt;
    return DecodeInstruction(std::span(code_).subspan(avma - start_avma_));
  }

  const AddressMap& map_;
  uint64_t start_avma_ = 0;
  std::vector<uint8_t> code_;
};

}  // namespace

bool IsCalledInLoop(const AddressMap& map, uint64_t return_avma) {
  using Kind = Instruction::Kind;
  CodeReader code(map);
  std::set<uint64_t> seen;
  std::vector<uint64_t> to_follow = {return_avma};
  while (!to_follow.empty()) {
    uint64_t avma = to_follow.back();
    to_follow.pop_back();
    while (seen.size() < kMaxInstructions && seen.insert(avma).second) {
      const auto instruction = code.At(avma);
      if (!instruction || instruction->kind == Kind::kReturn || instruction->kind == Kind::kEnd ||
          instruction->kind == Kind::kIndirectJump) {
        break;
      }
      const uint64_t end_avma = avma + instruction->size_bytes;
      if (instruction->kind == Kind::kCall && end_avma == return_avma) return true;
      const uint64_t target_avma = end_avma + static_cast<uint64_t>(static_cast<int64_t>(instruction->value));
      if (instruction->kind == Kind::kBranch) to_follow.push_back(target_avma);
      avma = instruction->kind == Kind::kJump ? target_avma : end_avma;
    }
  }
  return false;
}

}  // namespace stackd
