#include "daemon/analyze/code/syscall_site.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "daemon/analyze/names/syscall_name.h"
#include "daemon/unwind/x86_64/code_bytes.h"

namespace stackd {
namespace {

constexpr size_t kSyscallBytes = 2;  // 0f 05
constexpr size_t kMoveBytes = 5;     // b8 imm32: mov $imm32,%eax

bool IsSyscall(std::span<const uint8_t> code) { return code[0] == 0x0f && code[1] == 0x05; }

// A REX prefix: the move goes to r8.
bool IsRexPrefix(uint8_t byte) { return byte >= 0x40 && byte <= 0x4f; }

// True for an opcode whose operand byte a following b8 may be: `mov 0xca(%rax),%edi` is 8b b8 ca 00 00 00.
bool IsOpcodeWithOperand(uint8_t byte) {
  constexpr uint8_t kOpcodes[] = {0x03, 0x0b, 0x23, 0x2b, 0x33, 0x39, 0x3b, 0x63, 0x80, 0x81, 0x83,
                                  0x85, 0x89, 0x8b, 0x8d, 0xb6, 0xb7, 0xbe, 0xbf, 0xc6, 0xc7, 0xff};
  return std::ranges::find(kOpcodes, byte) != std::end(kOpcodes);
}

// `code` ends where the system call begins. Compilers load the number last, or nearly so: an argument may come in between.
// The check on the byte before is not needed next to the call: rax holds the number there and can be no address.
std::optional<uint32_t> NumberLoadedBefore(std::span<const uint8_t> code) {
  if (code[code.size() - 2] == 0x31 && code[code.size() - 1] == 0xc0) return 0;  // xor %eax,%eax
  for (size_t begin = code.size() - kMoveBytes; begin > 0; --begin) {
    const bool next_to_call = begin == code.size() - kMoveBytes;
    if (code[begin] != 0xb8 || IsRexPrefix(code[begin - 1])) continue;
    if (!next_to_call && IsOpcodeWithOperand(code[begin - 1])) continue;
    uint32_t number;
    std::memcpy(&number, &code[begin + 1], sizeof(number));
    if (!SyscallName(number).empty()) return number;
  }
  return std::nullopt;
}

}  // namespace

SyscallSite DecodeSyscallSite(std::span<const uint8_t> code) {
  if (code.size() != kSyscallSiteBytesBefore + kSyscallSiteBytesAfter) return {};
  const auto before = code.first(kSyscallSiteBytesBefore);
  if (IsSyscall(before.last(kSyscallBytes))) return {true, NumberLoadedBefore(before.first(before.size() - kSyscallBytes))};
  if (IsSyscall(code.last(kSyscallBytes))) return {true, NumberLoadedBefore(before)};
  return {};
}

std::optional<SyscallSite> ReadSyscallSite(const AddressMap& map, uint64_t pc_avma) {
  const Mapping* mapping = map.Find(pc_avma);
  if (mapping == nullptr || pc_avma - mapping->start_avma < kSyscallSiteBytesBefore) return std::nullopt;
  const auto code = ReadCode(map, pc_avma - kSyscallSiteBytesBefore, kSyscallSiteBytesBefore + kSyscallSiteBytesAfter);
  if (!code) return std::nullopt;
  return DecodeSyscallSite(*code);
}

}  // namespace stackd
