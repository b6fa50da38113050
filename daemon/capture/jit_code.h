// Code that its runtime describes: it was made at run time, or switches from one stack to another.
#pragma once

#include <cstdint>
#include <optional>

#include "daemon/capture/stack_copy.h"

namespace stackd {

struct JitFrame {
  uint64_t pc_avma = 0;
  uint64_t sp_avma = 0;   // stack pointer in that frame
  uint64_t cfa_avma = 0;  // its caller's stack pointer, just above the return address
  uint64_t caller_rbp = 0;
  // The frame is right whatever a file says of the code, and its caller may lie on another stack.
  bool overrides = false;
};

class JitCode {
 public:
  virtual ~JitCode() = default;

  // The frame that overrides what files say of the code; nullopt: there is none.
  virtual std::optional<JitFrame> OverridingFrameAt(uint64_t, uint64_t) { return std::nullopt; }

  // The frame that executes at `pc_avma`; nullopt if no such code is known there.
  virtual std::optional<JitFrame> FrameAt(uint64_t pc_avma, uint64_t sp_avma, uint64_t rbp, const StackCopy& stack) = 0;
};

}  // namespace stackd
