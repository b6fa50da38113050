#include "daemon/unwind/stack_walk.h"

#include <utility>

#include "daemon/unwind/cfi_step.h"
#include "daemon/unwind/x86_64/call_instruction.h"
#include "daemon/unwind/x86_64/code_bytes.h"

namespace stackd {
namespace {

constexpr uint64_t kRbp = Registers::kRbp, kRsp = Registers::kRsp, kRip = Registers::kRip;
// What the fast steps keep track of.
constexpr uint32_t kFastRegisters = 1u << kRbp | 1u << kRsp | 1u << kRip;

// Limit for what is interpreted for one stack, in bytes of CFI and operations. Real stacks need some thousand.
constexpr uint64_t kMaxInterpretedOfStack = 4 << 20;

// Stands for a frame pointer that is not known: no frame lies there, since frames are aligned.
constexpr uint64_t kUnknownRbp = 1;

bool NeedsRbp(RuleKind kind) { return kind == RuleKind::kRbp || kind == RuleKind::kAtRbp || kind == RuleKind::kAtRbpPlus8; }

bool IsCalledFrame(FrameOrigin origin) { return origin != FrameOrigin::kRegisters && origin != FrameOrigin::kSignalFrame; }

}  // namespace

StackWalk::Caller StackWalk::CallerFrom(uint64_t cfa_avma, FrameOrigin origin) const {
  const auto& value = registers_.registers.value;
  return {cfa_avma, value[kRip], value[kRsp], registers_.Get(kRbp).value_or(kUnknownRbp), origin};
}

void StackWalk::SetFastRegisters(uint64_t rip, uint64_t rsp, uint64_t rbp) {
  auto& value = registers_.registers.value;
  value[kRip] = rip;
  value[kRsp] = rsp;
  value[kRbp] = rbp;
  registers_.known = kFastRegisters;
  if (rbp == kUnknownRbp) registers_.Forget(kRbp);
}

std::optional<StackEnd> StackWalk::Run(const Registers& registers, bool all_registers, size_t max_frames) {
  all_registers_ = all_registers;
  interpreted_ = 0;
  code_steps_.StartStack();
  search_.StartStack();
  registers_ = {registers, registers.known};
  return Walk(FrameOrigin::kRegisters, max_frames);
}

std::optional<StackEnd> StackWalk::RunFromCaller(const Registers& registers) {
  registers_ = {registers, kFastRegisters};
  return Walk(FrameOrigin::kCfi, kMaxOuterFrames);
}

std::optional<StackEnd> StackWalk::Walk(FrameOrigin first_origin, size_t max_frames) {
  const bool all_registers = all_registers_;
  const auto& value = registers_.registers.value;
  uint64_t rip = value[kRip], rsp = value[kRsp], rbp = registers_.Get(kRbp).value_or(kUnknownRbp);
  frames_.clear();
  frames_.push_back({rip, 0, first_origin});
  UnwindRule rule = resolver_.Resolve(map_, frames_.back().lookup_avma());
  const auto stop = [&](StackEnd end) {
    last_rbp_ = rbp;
    return end;
  };

  while (frames_.size() < max_frames) {
    uint64_t cfa_avma = 0;
    FrameOrigin origin = FrameOrigin::kCfi;
    RuleKind kind = rule.kind;
    if (all_registers && kind >= RuleKind::kRsp && kind <= RuleKind::kRoot) kind = RuleKind::kSlow;
    bool rare = false;
    const auto overriding = jit_ == nullptr ? std::nullopt : jit_->OverridingFrameAt(rip, rsp);
    if (overriding) [[unlikely]] {
      rare = true;
    } else if (rbp == kUnknownRbp && NeedsRbp(kind)) [[unlikely]] {
      kind = RuleKind::kSlow;
      rare = true;
    } else if (kind == RuleKind::kRsp || kind == RuleKind::kRbp) [[likely]] {
      // Almost every frame. Chosen without a branch, which would be hard to predict.
      cfa_avma = (kind == RuleKind::kRbp ? rbp : rsp) + static_cast<uint64_t>(int64_t{rule.cfa_offset});
    } else if (kind == RuleKind::kPlt) {
      cfa_avma = rsp + 8 + (static_cast<int32_t>(rip & 15) >= rule.cfa_offset ? 8 : 0);
    } else if (kind == RuleKind::kRoot) {
      return StackEnd::kRoot;
    } else if (kind >= RuleKind::kAtRsp && kind <= RuleKind::kAtRbpPlus8) {
      bool by_rsp = kind == RuleKind::kAtRsp || kind == RuleKind::kAtRspPlus8;
      bool plus_8 = kind == RuleKind::kAtRspPlus8 || kind == RuleKind::kAtRbpPlus8;
      uint64_t address_avma = (by_rsp ? rsp : rbp) + static_cast<uint64_t>(int64_t{rule.cfa_offset});
      std::optional<uint64_t> word = stack_.Read(address_avma);
      if (!word) return stop(Unreadable(address_avma));
      cfa_avma = *word + (plus_8 ? 8 : 0);
    } else {
      rare = true;
    }

    if (!rare) [[likely]] {
      std::optional<uint64_t> return_address = stack_.Read(cfa_avma - 8);
      frames_.back().cfa_avma = cfa_avma;
      if (!return_address) return stop(Unreadable(cfa_avma - 8));
      if (cfa_avma <= rsp) return StackEnd::kNoProgress;
      if (rule.rbp != RbpRule::kSame) {
        uint64_t base = rule.rbp == RbpRule::kAtCfa ? cfa_avma : rbp;
        uint64_t saved_avma = base + static_cast<uint64_t>(int64_t{rule.rbp_offset});
        // Below the stack pointer: it was popped already, in an epilogue that the compiler did not describe.
        if (saved_avma >= rsp) rbp = stack_.Read(saved_avma).value_or(kUnknownRbp);
      }
      rip = *return_address;
      rsp = cfa_avma;
      registers_.known = kFastRegisters;
    } else {
      registers_.registers.value[kRip] = rip;
      registers_.registers.value[kRsp] = rsp;
      registers_.registers.value[kRbp] = rbp;
      if (rbp == kUnknownRbp) registers_.Forget(kRbp);
      Step step = overriding ? OverriddenStep(*overriding) : RareStep(kind, frames_.back());
      if (!step) return step.error() ? stop(*step.error()) : step.error();
      frames_.back().cfa_avma = step->cfa_avma;
      rip = step->rip;
      rsp = step->rsp;
      rbp = step->rbp;
      origin = step->origin;
      frames_.back().is_signal_trampoline = origin == FrameOrigin::kSignalFrame;
    }

    NativeFrame caller{rip, 0, origin};
    rule = resolver_.Resolve(map_, caller.lookup_avma());
    // Signals interrupt anything, even a jump to nowhere; but a return address must be code.
    if (IsCalledFrame(origin) && (rip == 0 || rule.kind == RuleKind::kNotCode)) {
      return rip == 0 && IsOutermost(rsp) ? StackEnd::kRoot : StackEnd::kBadReturnAddress;
    }
    frames_.push_back(caller);
  }
  return stop(StackEnd::kFrameLimit);
}

StackWalk::Step StackWalk::RareStep(RuleKind kind, const NativeFrame& frame) {
  switch (kind) {
    case RuleKind::kSlow:
      return InterpretedStep(frame);
    case RuleKind::kSigreturn:
      return SigreturnStep();
    case RuleKind::kNotCode:
      return WildCallStep();
    default:
      if (auto jit_frame = AskJit(frame)) return JitStep(*jit_frame);
      if (auto step = StepByCode(frame)) return *step;
      return FramePointerStep();
  }
}

std::optional<JitFrame> StackWalk::AskJit(const NativeFrame& frame) {
  if (jit_ == nullptr) return std::nullopt;
  const Mapping* mapping = map_.Find(frame.lookup_avma());
  if (mapping == nullptr || mapping->module != nullptr) return std::nullopt;
  const auto& value = registers_.registers.value;
  return jit_->FrameAt(frame.pc_avma, value[kRsp], value[kRbp], stack_);
}

StackWalk::Step StackWalk::JitStep(const JitFrame& frame) {
  const auto& value = registers_.registers.value;
  if (frame.cfa_avma <= value[kRsp]) return NoCaller(StackEnd::kNoProgress);
  return OverriddenStep(frame);
}

StackWalk::Step StackWalk::OverriddenStep(const JitFrame& frame) {
  std::optional<uint64_t> return_address = stack_.Read(frame.cfa_avma - 8);
  if (!return_address) return NoCaller(Unreadable(frame.cfa_avma - 8));
  SetFastRegisters(*return_address, frame.cfa_avma, frame.caller_rbp);
  return CallerFrom(frame.cfa_avma, FrameOrigin::kRuntime);
}

StackWalk::Step StackWalk::InterpretedStep(const NativeFrame& frame) {
  auto precise = resolver_.Interpret(map_, frame.lookup_avma());
  if (!precise) return FramePointerStep();
  interpreted_ += precise->cost_bytes;
  if (interpreted_ >= kMaxInterpretedOfStack) return NoCaller(StackEnd::kNoUnwindInfo);
  uint64_t steps_left = kMaxInterpretedOfStack - interpreted_;
  const auto apply = [&] {
    const bool needs_rbp = !all_registers_ && registers_.Get(kRbp);
    return ApplyRow(precise->cie, precise->row, registers_, stack_, needs_rbp, &steps_left);
  };
  auto step = apply();
  FrameOrigin origin = precise->cie.is_signal_frame ? FrameOrigin::kSignalFrame : FrameOrigin::kCfi;
  const auto lacks_register = [&] { return !step && step.error().kind == EvaluationError::kUnknownRegister; };
  // Another register the steps before may have kept, if they are done again with all.
  const bool knows_all = all_registers_ || precise->row.cfa.register_number == kRbp;
  if (lacks_register() && knows_all) {
    const auto found = search_.Find(frame, registers_.registers.value[kRsp], precise->row.cfa);
    if (found && !registers_.Get(found->number)) {
      registers_.Set(found->number, found->value);
      step = apply();
      origin = found->origin;
    }
  }
  interpreted_ = kMaxInterpretedOfStack - steps_left;
  if (!step) {
    switch (step.error().kind) {
      case EvaluationError::kMalformed:
        return NoCaller(StackEnd::kNoUnwindInfo);
      case EvaluationError::kUnreadable:
        return NoCaller(Unreadable(step.error().address_avma));
      case EvaluationError::kUnknownRegister:
        if (!all_registers_) return NoCaller(std::nullopt);
        return NoCaller(StackEnd::kUnknownRegister);
    }
  }
  if (!step->caller.Get(kRip)) {
    frames_.back().cfa_avma = step->cfa_avma;
    return NoCaller(StackEnd::kRoot);
  }
  // A signal may have been handled on another stack.
  if (origin != FrameOrigin::kSignalFrame && step->cfa_avma <= registers_.registers.value[kRsp])
    return NoCaller(StackEnd::kNoProgress);
  registers_ = step->caller;
  return CallerFrom(step->cfa_avma, origin);
}

// Before the frame pointer: code that keeps none leaves that of a function farther out.
std::optional<StackWalk::Step> StackWalk::StepByCode(const NativeFrame& frame) {
  const Mapping* mapping = map_.Find(frame.lookup_avma());
  if (mapping == nullptr || mapping->module == nullptr) return std::nullopt;
  const uint64_t bias = mapping->bias;
  const auto code_step = code_steps_.Find(*mapping->module, frame.pc_avma - bias, frame.lookup_avma() - bias);
  if (!code_step) return std::nullopt;
  const uint64_t rsp = registers_.registers.value[kRsp],
                 cfa_avma = rsp + static_cast<uint64_t>(int64_t{code_step->cfa_offset});
  const std::optional<uint64_t> return_address = stack_.Read(cfa_avma - 8);
  if (cfa_avma <= rsp || !return_address) return std::nullopt;
  const auto before = ReadCode(map_, *return_address - kLongestCallBytes, kLongestCallBytes);
  if (!before || !EndsWithCall(*before)) return std::nullopt;
  if (code_step->begin_svma) {
    const std::optional<uint64_t> callee_avma = TargetOfCall(*before, *return_address);
    const Mapping* callee = callee_avma ? map_.Find(*callee_avma) : nullptr;
    // What is called in another module is a stub that leads here.
    if (callee != nullptr && callee->module == mapping->module && *callee_avma != *code_step->begin_svma + bias) {
      return std::nullopt;
    }
  }
  uint64_t rbp = registers_.Get(kRbp).value_or(kUnknownRbp);
  if (code_step->rbp_offset) {
    rbp = stack_.Read(rsp + static_cast<uint64_t>(int64_t{*code_step->rbp_offset})).value_or(kUnknownRbp);
  }
  SetFastRegisters(*return_address, cfa_avma, rbp);
  return CallerFrom(cfa_avma, FrameOrigin::kCode);
}

// Code without CFI, if it keeps frame pointers: JIT code, Go. What passes these tests is almost surely a frame.
StackWalk::Step StackWalk::FramePointerStep() {
  const auto& value = registers_.registers.value;
  const uint64_t rbp = registers_.Get(kRbp).value_or(kUnknownRbp);
  auto end = [&](uint64_t from_avma) {
    if (frames_.size() > 1 && IsOutermost(from_avma)) return NoCaller(StackEnd::kRoot);
    return NoCaller(rbp == kUnknownRbp ? StackEnd::kUnknownRegister : StackEnd::kNoUnwindInfo);
  };
  // The first function of a thread has a zero here, if it keeps to the ABI.
  if (rbp < value[kRsp]) return end(value[kRsp]);
  std::optional<uint64_t> saved_rbp = stack_.Read(rbp);
  std::optional<uint64_t> return_address = stack_.Read(rbp + 8);
  if (!saved_rbp || !return_address) return end(value[kRsp]);
  if (*return_address == 0) return end(rbp + 16);
  if (resolver_.Resolve(map_, *return_address - 1).kind == RuleKind::kNotCode) return end(value[kRsp]);
  if (search_.LeavesOutFrames(frames_.back(), value[kRsp], rbp)) return NoCaller(StackEnd::kNoUnwindInfo);
  SetFastRegisters(*return_address, rbp + 16, *saved_rbp);
  return CallerFrom(rbp + 16, FrameOrigin::kFramePointer);
}

// rsp points to the ucontext_t that the kernel pushed.
StackWalk::Step StackWalk::SigreturnStep() {
  constexpr uint64_t kFirstRegisterOffset = 40;
  // In the order of ucontext_t, by DWARF number.
  constexpr uint64_t kNumbers[] = {8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16};
  RegisterFile interrupted;
  uint64_t context_avma = registers_.registers.value[kRsp];
  uint64_t word_avma = context_avma + kFirstRegisterOffset;
  for (uint64_t number : kNumbers) {
    std::optional<uint64_t> word = stack_.Read(word_avma);
    if (!word) return NoCaller(Unreadable(word_avma));
    interrupted.Set(number, *word);
    word_avma += 8;
  }
  registers_ = interrupted;
  return CallerFrom(context_avma, FrameOrigin::kSignalFrame);
}

// The interrupted program had jumped to where no code is. If that was a call, the return address is the last word pushed.
StackWalk::Step StackWalk::WildCallStep() {
  auto& value = registers_.registers.value;
  std::optional<uint64_t> return_address = stack_.Read(value[kRsp]);
  if (!return_address) return NoCaller(Unreadable(value[kRsp]));
  value[kRip] = *return_address;
  value[kRsp] += 8;
  return CallerFrom(value[kRsp], FrameOrigin::kFramePointer);
}

// Whether no word from `avma` up could be a return address. A zero below is then where the thread began, and not a return
// address that the agent's filter dropped.
bool StackWalk::IsOutermost(uint64_t avma) const {
  if (copy_truncated_) return false;
  for (uint64_t end_avma = stack_.EndOfPart(avma); avma < end_avma; avma += 8) {
    std::optional<uint64_t> word = stack_.Read(avma);
    if (!word) return false;
    if (*word != 0 && MayFollowCall(map_, *word)) return false;
  }
  return true;
}

}  // namespace stackd
