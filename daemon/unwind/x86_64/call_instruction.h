// Calls in x86-64 code, seen from behind.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace stackd {

// Opcode of a call that has its target in its last four bytes, relative to its end.
inline constexpr uint8_t kDirectCall = 0xe8;

// A call has no more, as far as EndsWithCall() knows them.
inline constexpr uint32_t kLongestCallBytes = 7;

// Whether the last instruction of `code` may be a call: what stands before a return address. At least kLongestCallBytes.
bool EndsWithCall(std::span<const uint8_t> code);

// Where a call that ends `code`, which ends at `end_avma`, leads; nullopt if it does not say, or there is none.
std::optional<uint64_t> TargetOfCall(std::span<const uint8_t> code, uint64_t end_avma);

}  // namespace stackd
