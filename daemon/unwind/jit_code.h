// Code made at run time, which no ELF file describes: its runtime does.
#pragma once

#include <cstdint>
#include <optional>

#include "daemon/unwind/stack_copy.h"

namespace stackd {

struct JitFrame {
  uint64_t pc_avma = 0;
  uint64_t sp_avma = 0;   // stack pointer in that frame
  uint64_t cfa_avma = 0;  // its caller's stack pointer behind the return address, which lies in the word below
  uint64_t caller_rbp = 0;
};

class JitCode {
 public:
  virtual ~JitCode() = default;

  // The frame that executes at `pc_avma`; nullopt if no such code is known there.
  virtual std::optional<JitFrame> FrameAt(uint64_t pc_avma, uint64_t sp_avma, uint64_t rbp, const StackCopy& stack) = 0;
};

}  // namespace stackd
