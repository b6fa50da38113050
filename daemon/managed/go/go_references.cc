#include "daemon/managed/go/go_references.h"

#include <algorithm>
#include <cstring>

namespace stackd {
namespace {

constexpr uint8_t kPrefix64 = 0x48, kRegisterAbove7 = 0x04;  // REX.W, REX.R

// The length of an instruction that stores the register at rsp + displacement; 0: it is none.
size_t StackStoreLength(std::span<const uint8_t> code, bool is_above_7, uint8_t reg) {
  const uint8_t prefix = is_above_7 ? kPrefix64 | kRegisterAbove7 : kPrefix64;
  if (code.size() < 4 || code[0] != prefix || code[1] != 0x89 || code[3] != 0x24) return 0;
  if ((code[2] & 0x3f) != (reg << 3 | 4)) return 0;
  constexpr size_t kLengths[] = {4, 5, 8, 0};
  return kLengths[code[2] >> 6];
}

// movb $imm8, disp(%rsp): the compiler marks a defer that was reached.
bool IsDeferMark(std::span<const uint8_t> code) {
  return code.size() >= 3 && code[0] == 0xc6 && (code[1] == 0x44 || code[1] == 0x84) && code[2] == 0x24;
}

GoReference::Kind KindOfAddress(std::span<const uint8_t> next, bool is_above_7, uint8_t reg) {
  const size_t length = StackStoreLength(next, is_above_7, reg);
  if (length == 0 || length > next.size()) return GoReference::Kind::kAddress;
  return IsDeferMark(next.subspan(length)) ? GoReference::Kind::kDefer : GoReference::Kind::kStack;
}

bool IsIndirectCall(std::span<const uint8_t> code) {
  return code.size() >= 2 && code[0] == 0xff && (code[1] & 0x38) == 0x10;
}

}  // namespace

std::vector<GoReference> GoReferencesOf(std::span<const uint8_t> code, uint64_t svma) {
  std::vector<GoReference> references;
  const auto target = [&](size_t end) {
    int32_t displacement;
    memcpy(&displacement, &code[end - sizeof(displacement)], sizeof(displacement));
    return svma + end + static_cast<int64_t>(displacement);
  };
  for (size_t at = 0; at + 5 <= code.size(); ++at) {
    if (code[at] == 0xe8 || code[at] == 0xe9) references.push_back({target(at + 5), GoReference::Kind::kCall, at + 5});
    // lea disp32(%rip), %r64
    if ((code[at] & 0xfb) != kPrefix64 || code[at + 1] != 0x8d || (code[at + 2] & 0xc7) != 0x05) continue;
    if (at + 7 > code.size()) continue;
    const bool is_above_7 = (code[at] & kRegisterAbove7) != 0;
    const uint8_t reg = code[at + 2] >> 3 & 7;
    references.push_back({target(at + 7), KindOfAddress(code.subspan(at + 7), is_above_7, reg), at + 7});
  }
  return references;
}

GoInterfaceCalls GoInterfaceCallsOf(std::span<const uint8_t> code) {
  // Where the table of methods has its first, and how far a call is from the load of its address.
  constexpr uint8_t kFirst = 0x18, kSecond = 0x20;
  constexpr size_t kMaxDistance = 40;
  GoInterfaceCalls calls;
  for (size_t at = 0; at + 4 <= code.size(); ++at) {
    // mov disp8(%r64), %r64
    const bool is_load = (code[at] & 0xf8) == kPrefix64 && code[at + 1] == 0x8b && (code[at + 2] & 0xc0) == 0x40;
    const uint8_t displacement = code[at + 3];
    if (!is_load || (code[at + 2] & 7) == 4 || (displacement != kFirst && displacement != kSecond)) continue;
    const auto after = code.subspan(at + 4, std::min(kMaxDistance, code.size() - at - 4));
    if (!HasIndirectCall(after)) continue;
    (displacement == kFirst ? calls.first : calls.second) = true;
  }
  return calls;
}

bool HasIndirectCall(std::span<const uint8_t> code) {
  for (size_t at = 0; at + 2 <= code.size(); ++at) {
    if (IsIndirectCall(code.subspan(at))) return true;
  }
  return false;
}

}  // namespace stackd
