#include "daemon/unwind/frame_search.h"

#include "daemon/unwind/tail_calls.h"
#include "daemon/unwind/x86_64/code_bytes.h"

namespace stackd {
namespace {

constexpr uint64_t kRbp = Registers::kRbp;

bool IsByRbp(RuleKind kind) { return kind == RuleKind::kRbp || kind == RuleKind::kAtRbp || kind == RuleKind::kAtRbpPlus8; }

}  // namespace

std::optional<FrameSearch::FoundRegister> FrameSearch::Find(const NativeFrame& frame, uint64_t rsp_avma,
                                                            const CfaRule& rule) {
  const auto function = FunctionOf(frame.lookup_avma());
  if (!function) return std::nullopt;
  if (rule.kind == CfaRule::kRegisterOffset) {
    if (const auto found = ByCode(*function, frame, rsp_avma, rule)) return found;
  }
  return ByDirectCalls(*function, frame, rsp_avma);
}

std::optional<FrameSearch::Function> FrameSearch::FunctionOf(uint64_t lookup_avma) {
  const Mapping* mapping = map_.Find(lookup_avma);
  if (mapping == nullptr) return std::nullopt;
  const auto function = knowledge_.resolver.FunctionAt(*mapping, lookup_avma);
  if (!function) return std::nullopt;
  // Parts of functions that lie elsewhere (".cold") begin with the frame of the whole.
  const UnwindRule at_begin = knowledge_.resolver.Resolve(map_, function->begin_svma + mapping->bias);
  if (at_begin.kind != RuleKind::kRsp || at_begin.cfa_offset != 8) return std::nullopt;
  return Function{*mapping, function->begin_svma, function->end_svma};
}

// By what the code of the function does to rsp, from its first instruction to `pc_avma`.
std::optional<CodeSteps::CfaOffsets> FrameSearch::CfaOffsetsIn(const Function& function, uint64_t pc_avma) {
  const uint64_t bias = function.mapping.bias;
  const auto by_table = [&](uint64_t svma) -> std::optional<int32_t> {
    const UnwindRule at_svma = knowledge_.resolver.Resolve(map_, svma + bias);
    return at_svma.kind == RuleKind::kRsp ? std::optional(at_svma.cfa_offset) : std::nullopt;
  };
  return knowledge_.code_steps.FindCfaOffsets(*function.mapping.module, function.begin_svma, function.end_svma,
                                              pc_avma - bias, by_table);
}

// Where the function aligns its stack, the frame may lie in a few places, and one of them has a return address.
std::optional<FrameSearch::FoundRegister> FrameSearch::ByCode(const Function& function, const NativeFrame& frame,
                                                              uint64_t rsp_avma, const CfaRule& rule) {
  const auto offsets = CfaOffsetsIn(function, frame.pc_avma);
  if (!offsets || offsets->nearest <= 0) return std::nullopt;
  std::optional<uint64_t> cfa_avma;
  for (int32_t offset = offsets->nearest; offset <= offsets->farthest; offset += 8) {
    const uint64_t candidate_avma = rsp_avma + static_cast<uint64_t>(int64_t{offset});
    const auto return_address = stack_.Read(candidate_avma - 8);
    // The right one may lie beyond the end of the copy.
    if (!return_address && copy_truncated_) return std::nullopt;
    if (!return_address) break;
    if (!IsReturnAddress(*return_address) || NamesAnotherFunction(*return_address, frame.lookup_avma())) continue;
    if (cfa_avma) return std::nullopt;
    cfa_avma = candidate_avma;
  }
  if (!cfa_avma || code_reads_left_ < 0) return std::nullopt;
  const bool is_certain = offsets->nearest == offsets->farthest;
  return FoundRegister{rule.register_number, *cfa_avma - static_cast<uint64_t>(rule.offset),
                       is_certain ? FrameOrigin::kCode : FrameOrigin::kSearch};
}

// Looks for the return address of a function that keeps a frame pointer. Where nothing else leads to the function, that is
// one after a direct call of it. In recursion, and where an earlier call has left its own, there are several, and none is
// sure.
std::optional<FrameSearch::FoundRegister> FrameSearch::ByDirectCalls(const Function& function, const NativeFrame& frame,
                                                                     uint64_t rsp_avma) {
  const UnwindRule rule = knowledge_.resolver.Resolve(map_, frame.lookup_avma());
  // The right one may lie beyond the end of the copy.
  if (copy_truncated_ || !IsByRbp(rule.kind)) return std::nullopt;
  std::optional<uint64_t> rbp_avma;
  const uint64_t end_avma = stack_.EndOfPart(rsp_avma);
  words_left_ -= static_cast<int64_t>((end_avma - rsp_avma) / 8);
  if (words_left_ < 0) return std::nullopt;
  for (uint64_t avma = (rsp_avma + 7) & ~uint64_t{7}; avma < end_avma; avma += 8) {
    const auto cfa_avma = CfaOf(rule, avma);
    if (!cfa_avma || *cfa_avma <= avma || *cfa_avma > end_avma) continue;
    if (!IsBehindCallOf(function, stack_.Read(*cfa_avma - 8).value_or(0))) continue;
    if (rbp_avma) return std::nullopt;
    rbp_avma = avma;
  }
  if (!rbp_avma || code_reads_left_ < 0 ||
      !knowledge_.direct_calls.AreOnlyWayTo(*function.mapping.module, function.begin_svma))
    return std::nullopt;
  return FoundRegister{kRbp, *rbp_avma, FrameOrigin::kSearch};
}

// The canonical frame address where rbp is `rbp_avma`; nullopt where the copy does not have it.
std::optional<uint64_t> FrameSearch::CfaOf(const UnwindRule& rule, uint64_t rbp_avma) const {
  const uint64_t base_avma = rbp_avma + static_cast<uint64_t>(int64_t{rule.cfa_offset});
  if (rule.kind == RuleKind::kRbp) return base_avma;
  const auto word = stack_.Read(base_avma);
  if (!word) return std::nullopt;
  return *word + (rule.kind == RuleKind::kAtRbpPlus8 ? 8 : 0);
}

// True also for the addresses that a signal handler and the first function of a fiber return to, which follow no call.
bool FrameSearch::IsReturnAddress(uint64_t avma) {
  if (avma == 0 || --code_reads_left_ < 0) return false;
  const RuleKind kind = knowledge_.resolver.Resolve(map_, avma - 1).kind;
  if (kind == RuleKind::kSigreturn || kind == RuleKind::kRoot) return true;
  if (kind == RuleKind::kSlow) {
    const auto precise = knowledge_.resolver.Interpret(map_, avma - 1);
    if (precise && precise->cie.is_signal_frame) return true;
  }
  return MayFollowCall(map_, avma);
}

// True also for a call to the middle of the function.
bool FrameSearch::IsBehindCallOf(const Function& function, uint64_t avma) {
  const Mapping* mapping = avma == 0 ? nullptr : map_.Find(avma - 1);
  const bool is_in_module = mapping != nullptr && mapping->executable && mapping->module == function.mapping.module &&
                            mapping->bias == function.mapping.bias;
  if (!is_in_module || --code_reads_left_ < 0) return false;
  const auto target_avma = TargetOfCallBefore(map_, avma);
  if (!target_avma) return false;
  const uint64_t target_svma = *target_avma - function.mapping.bias;
  return target_svma >= function.begin_svma && target_svma < function.end_svma;
}

bool FrameSearch::LeavesOutFrames(const NativeFrame& frame, uint64_t rsp_avma, uint64_t rbp_avma) {
  const auto return_address = stack_.Read(rbp_avma + 8);
  if (return_address && NamesAnotherFunction(*return_address, frame.lookup_avma())) return true;
  for (uint64_t avma = rsp_avma; avma < rbp_avma && --words_left_ >= 0; avma += 8) {
    if (LeadsToFrameAt(rbp_avma, avma)) return true;
  }
  return false;
}

// Whether the call before `return_avma` is of a function that does not hold `lookup_avma`, and returns by itself.
bool FrameSearch::NamesAnotherFunction(uint64_t return_avma, uint64_t lookup_avma) {
  const auto target_avma = TargetOfCallBefore(map_, return_avma);
  const auto function = target_avma ? FunctionOf(*target_avma) : std::nullopt;
  // A stub jumps to a function that only the dynamic linker knows.
  if (!function || knowledge_.resolver.Resolve(map_, *target_avma).kind == RuleKind::kPlt) return false;
  const uint64_t lookup_svma = lookup_avma - function->mapping.bias;
  if (lookup_svma >= function->begin_svma && lookup_svma < function->end_svma) return false;
  return !MayJumpOut(*function->mapping.module, function->begin_svma, function->end_svma);
}

// Whether the word at `slot_avma` is a return address from which tables lead to a function that has its frame at
// `rbp_avma`.
bool FrameSearch::LeadsToFrameAt(uint64_t rbp_avma, uint64_t slot_avma) {
  for (uint64_t sp_avma = slot_avma + 8; sp_avma <= rbp_avma;) {
    const uint64_t return_address = stack_.Read(sp_avma - 8).value_or(0);
    if (return_address == 0) return false;
    const UnwindRule rule = knowledge_.resolver.Resolve(map_, return_address - 1);
    const bool keeps_rbp = rule.kind == RuleKind::kRsp && rule.rbp == RbpRule::kSame && rule.cfa_offset > 0;
    if (!keeps_rbp && rule.kind != RuleKind::kRbp) return false;
    if (--code_reads_left_ < 0 || !MayFollowCall(map_, return_address)) return false;
    if (!keeps_rbp) {
      const auto function = FunctionOf(return_address - 1);
      const auto offsets = function ? CfaOffsetsIn(*function, return_address) : std::nullopt;
      const auto offset = static_cast<int64_t>(rbp_avma - sp_avma) + rule.cfa_offset;
      return !offsets || (offsets->nearest <= offset && offset <= offsets->farthest);
    }
    sp_avma += static_cast<uint64_t>(int64_t{rule.cfa_offset});
  }
  return false;
}

}  // namespace stackd
