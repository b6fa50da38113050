// DWARF expressions (DWARF 5, 2.5), as far as call frame information uses them.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <span>

#include "daemon/capture/stack_copy.h"
#include "daemon/unwind/register_file.h"

namespace stackd {

// Why a value could not be computed.
struct EvaluationError {
  enum Kind : uint8_t {
    kMalformed,        // or an operation that makes no sense without a process
    kUnknownRegister,  // its value was not tracked up to this frame
    kUnreadable,       // `address_avma` is not in the stack copy
  };
  Kind kind;
  uint64_t address_avma = 0;
};

using Evaluation = std::expected<uint64_t, EvaluationError>;

// Starts with `initial` on the stack, if given. Takes one from `*steps_left` for each operation and fails (kMalformed) when
// it reaches zero, since expressions may loop.
Evaluation EvaluateExpression(std::span<const uint8_t> expression, const RegisterFile& registers, const StackCopy& stack,
                              std::optional<uint64_t> initial, uint64_t* steps_left);

}  // namespace stackd
