// Walks from one frame to the next, up to the end of a stack.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <vector>

#include "daemon/capture/jit_code.h"
#include "daemon/capture/native_stack.h"
#include "daemon/capture/registers.h"
#include "daemon/capture/stack_copy.h"
#include "daemon/modules/address_map.h"
#include "daemon/unwind/frame_search.h"
#include "daemon/unwind/register_file.h"
#include "daemon/unwind/rule_resolver.h"

namespace stackd {

// Frames that are left for the outermost end of a stack with a gap.
inline constexpr size_t kMaxOuterFrames = 1024;
static_assert(kMaxOuterFrames < kMaxFrames);

// The walk up one stack.
//
// The usual step knows rip, rsp and rbp only and takes nanoseconds. A rule may need another register that only the steps
// before could have kept. Then the whole walk is done again with all registers, by the interpreter.
class StackWalk {
 public:
  StackWalk(ModuleKnowledge& knowledge, const StackCopy& stack, bool copy_truncated, const AddressMap& map, JitCode* jit,
            std::vector<NativeFrame>& frames)
      : resolver_(knowledge.resolver),
        code_steps_(knowledge.code_steps),
        search_(knowledge, stack, copy_truncated, map),
        stack_(stack),
        copy_truncated_(copy_truncated),
        map_(map),
        jit_(jit),
        frames_(frames) {}

  // Walks from an interrupted instruction. nullopt: to be called again with `all_registers`, which never gives nullopt.
  std::optional<StackEnd> Run(const Registers& registers, bool all_registers, size_t max_frames = kMaxFrames);
  // Walks from a frame that was called, of which only rip, rsp and rbp are known. nullopt: they are not enough.
  std::optional<StackEnd> RunFromCaller(const Registers& registers);

  // rbp of the last frame, where the copy ended or the frames were too many.
  uint64_t last_rbp() const { return last_rbp_; }

 private:
  struct Caller {
    uint64_t cfa_avma, rip, rsp, rbp;
    FrameOrigin origin;
  };
  // Why there is no caller; nullopt: see Run.
  using NoCaller = std::unexpected<std::optional<StackEnd>>;
  using Step = std::expected<Caller, std::optional<StackEnd>>;

  std::optional<StackEnd> Walk(FrameOrigin first_origin, size_t max_frames);
  Step RareStep(RuleKind kind, const NativeFrame& frame);
  Step InterpretedStep(const NativeFrame& frame);
  std::optional<JitFrame> AskJit(const NativeFrame& frame);
  Step JitStep(const JitFrame& frame);
  Step OverriddenStep(const JitFrame& frame);
  std::optional<Step> StepByCode(const NativeFrame& frame);
  Step FramePointerStep();
  Step SigreturnStep();
  Step WildCallStep();

  Caller CallerFrom(uint64_t cfa_avma, FrameOrigin origin) const;
  void SetFastRegisters(uint64_t rip, uint64_t rsp, uint64_t rbp);
  StackEnd Unreadable(uint64_t avma) const {
    return copy_truncated_ && avma >= stack_.end_avma() ? StackEnd::kTruncated : StackEnd::kUnreadable;
  }
  bool IsOutermost(uint64_t avma) const;

  RuleResolver& resolver_;
  CodeSteps& code_steps_;
  FrameSearch search_;
  const StackCopy& stack_;
  const bool copy_truncated_;
  const AddressMap& map_;
  JitCode* const jit_;  // may be nullptr
  std::vector<NativeFrame>& frames_;
  bool all_registers_ = false;
  uint64_t interpreted_ = 0;
  uint64_t last_rbp_ = 0;
  // Registers before a rare step; fast steps keep their three in local variables.
  RegisterFile registers_;
};

}  // namespace stackd
