// Steps from a frame to its caller by the rules of one row of CFI, with all registers.
#pragma once

#include <cstdint>
#include <expected>

#include "daemon/capture/stack_copy.h"
#include "daemon/unwind/cfi.h"
#include "daemon/unwind/expression.h"
#include "daemon/unwind/register_file.h"

namespace stackd {

struct CfiStep {
  uint64_t cfa_avma;
  // Without rip if the return address is undefined: there is no caller.
  RegisterFile caller;
};

// Fails if CFA, stack pointer or return address cannot be found; another register that cannot is unknown in the caller.
// `needs_rbp`: fails too if rbp depends on an unknown register. Operations of expressions are taken from `*steps_left`.
std::expected<CfiStep, EvaluationError> ApplyRow(const Cie& cie, const CfiRow& row, const RegisterFile& callee,
                                                 const StackCopy& stack, bool needs_rbp, uint64_t* steps_left);

}  // namespace stackd
