#include "daemon/analyze/code/fault_instruction.h"

#include <algorithm>

#include "daemon/unwind/x86_64/code_bytes.h"

namespace stackd {
namespace {

constexpr uint32_t kMaxInstructionBytes = 15;

bool IsIn(uint8_t byte, std::initializer_list<uint8_t> list) { return std::ranges::find(list, byte) != list.end(); }

bool IsPrefix(uint8_t byte) {
  const bool rex = byte >= 0x40 && byte <= 0x4f;
  return rex || IsIn(byte, {0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3});
}

// Tells moves that demand alignment from other opcodes after 0f: movaps, movntps; after 66 also movdqa, movntdq.
bool IsAlignedMove(uint8_t opcode, bool with_66) {
  return IsIn(opcode, {0x28, 0x29, 0x2b}) || (with_66 && IsIn(opcode, {0x6f, 0x7f, 0xe7}));
}

FaultInstruction DecodeTwoByteOpcode(uint8_t opcode, bool with_66) {
  if (opcode == 0x0b) return FaultInstruction::kTrap;
  // clts, invd, wbinvd, moves to and from control and debug registers, wrmsr, rdmsr.
  if (IsIn(opcode, {0x06, 0x08, 0x09, 0x20, 0x21, 0x22, 0x23, 0x30, 0x32})) return FaultInstruction::kPrivileged;
  return IsAlignedMove(opcode, with_66) ? FaultInstruction::kAligned : FaultInstruction::kOther;
}

}  // namespace

FaultInstruction DecodeFaultInstruction(std::span<const uint8_t> code) {
  bool with_66 = false;
  while (!code.empty() && IsPrefix(code[0])) {
    with_66 = with_66 || code[0] == 0x66;
    code = code.subspan(1);
  }
  if (code.empty()) return FaultInstruction::kOther;
  const uint8_t opcode = code[0];
  if (opcode == 0xcc) return FaultInstruction::kBreakpoint;
  // hlt, cli, sti; in and out in all their forms.
  if (IsIn(opcode, {0xf4, 0xfa, 0xfb, 0x6c, 0x6d, 0x6e, 0x6f, 0xe4, 0xe5, 0xe6, 0xe7, 0xec, 0xed, 0xee, 0xef})) {
    return FaultInstruction::kPrivileged;
  }
  if (opcode == 0xc3 || opcode == 0xc2) return FaultInstruction::kReturn;
  if (opcode == 0xff && code.size() >= 2) {
    const uint8_t mod = code[1] >> 6, operation = code[1] >> 3 & 7;
    return mod == 3 && (operation == 2 || operation == 4) ? FaultInstruction::kJump : FaultInstruction::kOther;
  }
  if (opcode == 0x0f && code.size() >= 2) return DecodeTwoByteOpcode(code[1], with_66);
  // The VEX forms hold the 66 in the last two bits of their last byte, and the map of opcodes in the one before.
  if (opcode == 0xc5 && code.size() >= 3 && IsAlignedMove(code[2], (code[1] & 3) == 1)) return FaultInstruction::kAligned;
  const bool is_map_0f = opcode == 0xc4 && code.size() >= 4 && (code[1] & 0x1f) == 1;
  if (is_map_0f && IsAlignedMove(code[3], (code[2] & 3) == 1)) return FaultInstruction::kAligned;
  return FaultInstruction::kOther;
}

FaultInstruction ReadFaultInstruction(const AddressMap& map, uint64_t pc_avma) {
  const auto code = ReadCode(map, pc_avma, kMaxInstructionBytes);
  return code ? DecodeFaultInstruction(*code) : FaultInstruction::kOther;
}

}  // namespace stackd
