#include "daemon/unwind/gap_crossing.h"

#include <algorithm>
#include <unordered_set>

#include "daemon/unwind/x86_64/call_instruction.h"
#include "daemon/unwind/x86_64/code_bytes.h"

namespace stackd {
namespace {

// All frames that are tried for one stack.
constexpr size_t kMaxTriedFrames = 1 << 16;

constexpr size_t kKnownFrames = 64;

}  // namespace

bool HasGap(const StackCopy& stack, const AddressMap& map) {
  if (stack.outer_word_count() == 0 || stack.outer_base_avma() <= stack.end_avma()) return false;
  const auto& mappings = map.mappings();
  const auto first_above = std::ranges::upper_bound(mappings, stack.base_avma(), {}, &Mapping::end_avma);
  return first_above != mappings.end() && first_above->start_avma <= stack.outer_base_avma() &&
         first_above->end_avma > stack.outer_base_avma();
}

std::vector<NativeFrame> GapCrossing::Find(std::span<const NativeFrame> inner) {
  std::unordered_set<uint64_t> known_pcs;
  for (const NativeFrame& frame : inner.last(std::min(inner.size() / 2, kKnownFrames))) known_pcs.insert(frame.pc_avma);
  std::vector<NativeFrame> longest;
  const uint64_t end_avma = stack_.outer_base_avma() + 8ull * stack_.outer_word_count();
  for (uint64_t avma = stack_.outer_base_avma(); avma < end_avma && tried_frames_ < kMaxTriedFrames; avma += 8) {
    const uint64_t pc_avma = stack_.Read(avma).value_or(0);
    if (!IsReturnAddress(pc_avma, avma) || !Try(pc_avma, avma)) continue;
    if (known_pcs.contains(pc_avma)) return tried_;
    if (tried_.size() > longest.size()) longest = tried_;
  }
  return longest;
}

// `rbp` if it may be the frame pointer of the frame that begins at `avma`, or of one farther out; else 0.
uint64_t GapCrossing::FramePointerAt(uint64_t avma, uint64_t rbp) const {
  const bool is_outer = rbp - stack_.outer_base_avma() < 8ull * stack_.outer_word_count();
  return is_outer && rbp >= avma ? rbp : 0;
}

// Functions that have a frame pointer save their caller's first of all.
uint64_t GapCrossing::SavedFramePointer(uint64_t slot_avma) const {
  return FramePointerAt(slot_avma + 8, stack_.Read(slot_avma - 8).value_or(0));
}

bool GapCrossing::IsReturnAddress(uint64_t pc_avma, uint64_t slot_avma) {
  if (pc_avma == 0 || resolver_.Resolve(map_, pc_avma - 1).kind == RuleKind::kNotCode) return false;
  const auto code = ReadCode(map_, pc_avma - kLongestCallBytes, kLongestCallBytes);
  // Generated code cannot be read, but it keeps frame pointers.
  return code ? EndsWithCall(*code) : SavedFramePointer(slot_avma) != 0;
}

bool GapCrossing::Try(uint64_t pc_avma, uint64_t slot_avma) {
  const uint64_t saved_rbp = SavedFramePointer(slot_avma);
  // Functions that do not use rbp leave it as it was, through as much of a stack as they fill.
  const uint64_t kept_rbp = FramePointerAt(slot_avma + 8, inner_rbp_);
  return TryWith(pc_avma, slot_avma, saved_rbp) || (kept_rbp != saved_rbp && TryWith(pc_avma, slot_avma, kept_rbp));
}

bool GapCrossing::TryWith(uint64_t pc_avma, uint64_t slot_avma, uint64_t rbp) {
  Registers registers;
  registers.value[Registers::kRip] = pc_avma;
  registers.value[Registers::kRsp] = slot_avma + 8;
  registers.value[Registers::kRbp] = rbp;
  const auto end = walk_.RunFromCaller(registers);
  tried_frames_ += tried_.size();
  return end == StackEnd::kRoot && (tried_.size() < 2 || MayCall(tried_[1].pc_avma, pc_avma));
}

// False if the call before `return_avma` is of another function than the one that holds `pc_avma`.
bool GapCrossing::MayCall(uint64_t return_avma, uint64_t pc_avma) {
  const auto code = ReadCode(map_, return_avma - kLongestCallBytes, kLongestCallBytes);
  const auto target_avma = code ? TargetOfCall(*code, return_avma) : std::nullopt;
  if (!target_avma) return true;
  // A stub jumps to a function that only the dynamic linker knows.
  if (resolver_.Resolve(map_, *target_avma).kind == RuleKind::kPlt) return true;
  const Mapping* mapping = map_.Find(pc_avma - 1);
  const auto function = mapping != nullptr ? resolver_.FunctionAt(*mapping, pc_avma - 1) : std::nullopt;
  return !function || function->begin_svma + mapping->bias == *target_avma;
}

}  // namespace stackd
