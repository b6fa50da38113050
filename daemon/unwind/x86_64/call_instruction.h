// Calls in x86-64 code, found from the return address.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace stackd {

// Opcode of a call that has its target in its last four bytes, relative to its end.
inline constexpr uint8_t kDirectCall = 0xe8;

// Size of the longest call that EndsWithCall() knows.
inline constexpr uint32_t kLongestCallBytes = 7;

// Whether the last instruction of `code` may be a call: what stands before a return address. At least kLongestCallBytes.
bool EndsWithCall(std::span<const uint8_t> code);

// Target of the call at the end of `code`, which ends at `end_avma`; nullopt if there is none, or it does not say.
std::optional<uint64_t> TargetOfCall(std::span<const uint8_t> code, uint64_t end_avma);

}  // namespace stackd
