// Frames of Java code on one thread's stack: found while the unwinder goes up, named by the VM's own tables.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "daemon/capture/jit_code.h"
#include "daemon/capture/managed.h"
#include "daemon/capture/managed_trace.h"
#include "daemon/capture/native_stack.h"
#include "daemon/capture/stack_copy.h"
#include "daemon/managed/hotspot/code_cache.h"
#include "daemon/managed/hotspot/methods.h"

namespace stackd::hotspot {

// What all threads of a capture may take together.
struct FrameLimits {
  int64_t deadline_ns = 0;
  uint64_t left_bytes = 64 << 20;  // for functions in frames
  bool is_late = false;            // the deadline passed, and a frame was not looked at
  bool is_full = false;            // a frame has no names, as there was no room
};

class JavaFrames : public JitCode {
 public:
  struct Thread {
    uint64_t rsp = 0;
    const ManagedTrace* trace = nullptr;   // as its handler saw interpreted frames; may be nullptr
    bool is_trace_whole = false;           // no other interpreted frame was there
    uint64_t continuation_entry_avma = 0;  // of a virtual thread that it carries; 0: none
  };

  JavaFrames(ProcessMemory* memory, const Layout& layout, CodeCache* code, Methods* methods, FrameLimits* limits,
             const Thread& thread);

  std::optional<JitFrame> FrameAt(uint64_t pc_avma, uint64_t sp_avma, uint64_t rbp, const StackCopy& stack) override;

  // Adds the frames found by FrameAt that are in `native`.
  void Collect(const NativeStack& native, ManagedThread* thread) const;

 private:
  struct Found {
    JitFrame frame;
    std::vector<ManagedFrame> functions;  // innermost first
  };
  using Step = std::optional<JitFrame>;

  Step InterpretedFrame(uint64_t pc_avma, uint64_t sp_avma, uint64_t rbp, const StackCopy& stack);
  Step CompiledFrame(const CodeBlob& blob, uint64_t pc_avma, uint64_t sp_avma, uint64_t rbp, const StackCopy& stack);
  Step StubFrame(const CodeBlob& blob, uint64_t pc_avma, uint64_t sp_avma, uint64_t rbp, const StackCopy& stack);
  // Whether the word below `cfa_avma` points into code of the VM's making, as a return address of Java code does.
  bool IsCaller(uint64_t cfa_avma, const StackCopy& stack);
  // Whether it is a return address: for places where nothing says that one must be.
  bool IsSurelyCaller(uint64_t cfa_avma, const StackCopy& stack);
  bool IsBehindCall(uint64_t pc_avma);
  ManagedFrame Function(uint64_t method_avma, int64_t bytecode_index, uint64_t sp_avma, uint64_t pc_avma);
  std::optional<ManagedFrame> InterpretedFunction(uint64_t fp_avma, uint64_t return_address);
  std::optional<ManagedFrame> FunctionAt(uint64_t fp_avma, uint64_t method_avma, int64_t bytecode_index);
  Step Keep(const JitFrame& frame, std::vector<ManagedFrame> functions);

  ProcessMemory* memory_;
  const Layout& layout_;
  CodeCache* code_;
  Methods* methods_;
  FrameLimits* limits_;
  const Thread thread_;
  std::map<uint64_t, const ManagedTraceFrame*> interpreted_;  // by frame pointer
  // Where an interpreted frame ends on the stack, and where its compiled caller's begins: arguments are between.
  std::map<uint64_t, uint64_t> caller_sp_;
  std::map<uint64_t, Found> found_;  // by stack pointer
};

}  // namespace stackd::hotspot
