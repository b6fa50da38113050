#include "daemon/unwind/x86_64/call_instruction.h"

#include <cstring>

namespace stackd {
namespace {

// Bytes of a call through a register or memory (ff /2) that begins with `code`; 0 if it is none.
size_t IndirectCallBytes(std::span<const uint8_t> code) {
  if (code[0] != 0xff) return 0;
  const uint8_t mod = code[1] >> 6, operation = code[1] >> 3 & 7, rm = code[1] & 7;
  if (operation != 2) return 0;
  if (mod == 3) return 2;
  const bool has_sib = rm == 4;
  const bool without_base = mod == 0 && (has_sib ? code.size() > 2 && (code[2] & 7) == 5 : rm == 5);
  const size_t displacement_bytes = mod == 1 ? 1 : mod == 2 || without_base ? 4 : 0;
  return 2 + has_sib + displacement_bytes;
}

}  // namespace

bool EndsWithCall(std::span<const uint8_t> code) {
  if (code.size() < kLongestCallBytes) return false;
  if (code[code.size() - 5] == kDirectCall) return true;
  for (size_t length = 2; length <= kLongestCallBytes; ++length) {
    if (IndirectCallBytes(code.last(length)) == length) return true;
  }
  return false;
}

std::optional<uint64_t> TargetOfCall(std::span<const uint8_t> code, uint64_t end_avma) {
  if (code.size() < 5 || code[code.size() - 5] != kDirectCall) return std::nullopt;
  int32_t distance;
  memcpy(&distance, code.data() + code.size() - sizeof(distance), sizeof(distance));
  return end_avma + static_cast<uint64_t>(int64_t{distance});
}

}  // namespace stackd
