// The frames of native code on one stack: what unwinding gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stackd {

// How a stack ended is part of the result. Numbers as in stackd.v1.Stack.End.
enum class StackEnd : uint8_t {
  kRoot = 1,
  kTruncated = 2,
  kUnreadable = 3,
  kNoUnwindInfo = 4,
  kNoProgress = 5,
  kBadReturnAddress = 6,
  kFrameLimit = 7,
  kUnknownRegister = 8,
};

// How a frame was found. Numbers as in stackd.v1.Frame.Origin.
enum class FrameOrigin : uint8_t {
  kRegisters = 1,
  kCfi = 2,
  kFramePointer = 3,
  kSignalFrame = 4,
  kRuntime = 6,
  kCode = 8,
  kSearch = 9,
};

struct NativeFrame {
  uint64_t pc_avma;
  // Stack pointer of the caller at the call: the frame's canonical frame address; 0 if it was not found.
  uint64_t cfa_avma;
  FrameOrigin origin;
  // The code that a signal handler returns to; the frame after it is what the signal interrupted.
  bool is_signal_trampoline = false;

  // The address to look up for this frame: a return address stands after its call, perhaps in the next function.
  uint64_t lookup_avma() const {
    bool was_called = origin != FrameOrigin::kRegisters && origin != FrameOrigin::kSignalFrame;
    // A trampoline was not called: the handler returns to its first instruction.
    return was_called && !is_signal_trampoline ? pc_avma - 1 : pc_avma;
  }
};

struct NativeStack {
  std::vector<NativeFrame> frames;  // innermost first
  StackEnd end;
  // Size of the gap in a stack whose middle was not copied, and the index of the first frame after it. 0 bytes: no gap.
  uint64_t omitted_bytes = 0;
  size_t omitted_before = 0;
};

inline constexpr int kMaxFrames = 4096;

}  // namespace stackd
