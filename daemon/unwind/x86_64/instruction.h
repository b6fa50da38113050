// x86-64 machine code, as far as an unwinder needs it: an instruction's size, where it leads, what it does to rsp.
//
// Encoding: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, chapter 2 and appendix A.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace stackd {

struct Instruction {
  enum class Kind : uint8_t {
    kOther,       // leads on, and leaves rsp alone
    kNothing,     // likewise, and does nothing else: what fills the room between functions
    kPush,        // `value`: the register; -1: something else
    kPop,         // likewise
    kMoveStack,   // adds `value` to rsp
    kAlignStack,  // lowers rsp to a multiple of `value`, a power of two
    kLosesStack,  // rsp is something else afterwards
    kCall,        // `value`: see kJump; 0 if the target is in a register or in memory
    kJump,        // `value`: from the end of the instruction to the target
    kBranch,      // likewise, or leads on
    kIndirectJump,
    kReturn,
    kEnd,  // nothing follows: hlt, ud2, int3
  };

  uint8_t size_bytes;
  Kind kind;
  int32_t value;
};

inline constexpr size_t kMaxInstructionBytes = 15;

// The first instruction of `code`; nullopt if it is none, or not all there.
std::optional<Instruction> DecodeInstruction(std::span<const uint8_t> code);

}  // namespace stackd
