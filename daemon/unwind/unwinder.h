// Registers, a stack copy and an address map in; return addresses out. No I/O but reading unwind tables of modules on their
// first use, and what a JitCode does.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/module/address_map.h"
#include "daemon/unwind/jit_code.h"
#include "daemon/unwind/stack_copy.h"

namespace stackd {

// In the order of the x86-64 psABI's DWARF numbers: rax rdx rcx rbx rsi rdi rbp rsp r8..r15, rip.
struct Registers {
  static constexpr int kRbp = 6, kRsp = 7, kRip = 16;
  static constexpr uint32_t kAll = (1u << 17) - 1;
  std::array<uint64_t, 17> value{};
  // Bit N: value[N] is what the thread had. Of a thread that was read while it slept, procfs tells rip and rsp only.
  uint32_t known = kAll;
};

// The registers that are known of a thread which was read while it slept. Its rbp is 0 where it is not known.
inline uint32_t KnownAsleep(const Registers& registers) {
  const uint32_t always = 1u << Registers::kRsp | 1u << Registers::kRip;
  return registers.value[Registers::kRbp] != 0 ? always | 1u << Registers::kRbp : always;
}

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
    // Nobody called a trampoline: a handler returns to its first instruction.
    return was_called && !is_signal_trampoline ? pc_avma - 1 : pc_avma;
  }
};

struct NativeStack {
  std::vector<NativeFrame> frames;  // innermost first
  StackEnd end;
  // Of a stack whose middle was not copied: how much of it no frame is known of, and the first frame behind that. 0 bytes:
  // nothing is missing in the middle.
  uint64_t omitted_bytes = 0;
  size_t omitted_before = 0;
};

inline constexpr int kMaxFrames = 4096;

// Thread safety: an Unwinder is used by one thread at a time (it holds a rule cache); tables of modules are shared behind
// it.
class Unwinder {
 public:
  Unwinder();
  ~Unwinder();

  // `copy_truncated`: the stack went on beyond the copy, so running off its end is kTruncated. Where the copy holds both
  // ends of one stack, the frames behind the gap follow those before it, if the way on can be found. `jit`, if it is given,
  // is asked of code that no file describes; it may be asked of the same frame twice.
  NativeStack Unwind(const Registers& registers, const StackCopy& stack, bool copy_truncated, const AddressMap& map,
                     JitCode* jit = nullptr);

 private:
  struct State;

  void CrossGap(const StackCopy& stack, const AddressMap& map, JitCode* jit, uint64_t inner_rbp, NativeStack* result);

  std::unique_ptr<State> state_;
};

}  // namespace stackd
