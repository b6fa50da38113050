// Unwinding across the gap in a stack whose middle was not copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "daemon/unwind/stack_walk.h"

namespace stackd {

// Whether the two parts of the copy are the innermost and the outermost end of one stack: nothing else is mapped between
// them. (The mapping of a main thread's stack may have been read before it grew.)
bool HasGap(const StackCopy& stack, const AddressMap& map);

// Finds the first frame after the gap in a stack whose middle was not copied.
//
// The outermost end of the stack begins anywhere in a frame. Its words are tried as return addresses, from the lowest up. A
// word is right if the walk from there reaches the thread's first function. What returned calls left in memory can pass
// that test too, with one frame too many at the begin. So a word must follow a call. If the next frame's call names a
// function, that must be the function of the first frame. Addresses that the innermost end has just before the gap are
// preferred: recursion, which is what fills stacks, has the same ones everywhere.
class GapCrossing {
 public:
  // `inner_rbp`: rbp of the last frame before the gap.
  GapCrossing(ModuleKnowledge& knowledge, const StackCopy& stack, const AddressMap& map, JitCode* jit, uint64_t inner_rbp)
      : resolver_(knowledge.resolver),
        stack_(stack),
        map_(map),
        inner_rbp_(inner_rbp),
        walk_(knowledge, stack, /*copy_truncated=*/false, map, jit, tried_) {}

  // Frames from the first one after the gap to the root; empty if none is found.
  std::vector<NativeFrame> Find(std::span<const NativeFrame> inner);

 private:
  uint64_t FramePointerAt(uint64_t avma, uint64_t rbp) const;
  uint64_t SavedFramePointer(uint64_t slot_avma) const;
  bool IsReturnAddress(uint64_t pc_avma, uint64_t slot_avma);
  bool Try(uint64_t pc_avma, uint64_t slot_avma);
  bool TryWith(uint64_t pc_avma, uint64_t slot_avma, uint64_t rbp);
  bool MayCall(uint64_t return_avma, uint64_t pc_avma);

  RuleResolver& resolver_;
  const StackCopy& stack_;
  const AddressMap& map_;
  const uint64_t inner_rbp_;
  std::vector<NativeFrame> tried_;
  StackWalk walk_;
  size_t tried_frames_ = 0;
};

}  // namespace stackd
