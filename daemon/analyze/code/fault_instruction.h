// What kind of instruction a thread could not get past, where that says more than the signal does.
#pragma once

#include <cstdint>
#include <span>

#include "daemon/modules/address_map.h"

namespace stackd {

enum class FaultInstruction {
  kOther,       // any other, or the code could not be read
  kBreakpoint,  // int3
  kTrap,        // ud2: what compilers put where a program must not come
  kReturn,      // ret: its address comes from the stack
  kJump,        // a call or jump to the address that a register holds
  kPrivileged,  // for kernels: hlt, in, out, ...
  kAligned,     // an SSE or AVX access that faults where its operand is not aligned
};

// `code` begins with the instruction.
FaultInstruction DecodeFaultInstruction(std::span<const uint8_t> code);

FaultInstruction ReadFaultInstruction(const AddressMap& map, uint64_t pc_avma);

}  // namespace stackd
