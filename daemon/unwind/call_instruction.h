// Calls in x86-64 code, seen from behind.
#pragma once

#include <cstdint>
#include <span>

namespace stackd {

// Opcode of a call that has its target in its last four bytes, relative to its end.
inline constexpr uint8_t kDirectCall = 0xe8;

// Whether the last instruction of `code` may be a call: what stands before a return address. At least 7 bytes.
bool EndsWithCall(std::span<const uint8_t> code);

}  // namespace stackd
