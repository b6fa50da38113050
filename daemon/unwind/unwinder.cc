#include "daemon/unwind/unwinder.h"

#include <optional>

#include "daemon/unwind/gap_crossing.h"
#include "daemon/unwind/stack_walk.h"

namespace stackd {

struct Unwinder::State {
  ModuleKnowledge knowledge;
  std::vector<NativeFrame> frames;  // reused, so that a stack takes one allocation, of the right size
};

Unwinder::Unwinder() : state_(std::make_unique<State>()) {}
Unwinder::~Unwinder() = default;

NativeStack Unwinder::Unwind(const Registers& registers, const StackCopy& stack, bool copy_truncated, const AddressMap& map,
                             JitCode* jit) {
  state_->knowledge.resolver.UseMap(map);
  state_->knowledge.direct_calls.UseMap(map.id());
  const bool has_gap = HasGap(stack, map);
  const size_t max_frames = has_gap ? kMaxFrames - kMaxOuterFrames : kMaxFrames;
  StackWalk walk(state_->knowledge, stack, copy_truncated || has_gap, map, jit, state_->frames);
  std::optional<StackEnd> end = walk.Run(registers, /*all_registers=*/false, max_frames);
  if (!end) end = walk.Run(registers, /*all_registers=*/true, max_frames);
  NativeStack result{state_->frames, end.value_or(StackEnd::kNoUnwindInfo)};
  if (has_gap && (result.end == StackEnd::kTruncated || result.end == StackEnd::kFrameLimit)) {
    CrossGap(stack, map, jit, walk.last_rbp(), &result);
  }
  return result;
}

void Unwinder::CrossGap(const StackCopy& stack, const AddressMap& map, JitCode* jit, uint64_t inner_rbp,
                        NativeStack* result) {
  auto& frames = result->frames;
  const std::vector<NativeFrame> outer = GapCrossing(state_->knowledge, stack, map, jit, inner_rbp).Find(frames);
  if (outer.empty()) return;
  // Where the frames were too many, copied stack is left out as well.
  const bool too_many = result->end == StackEnd::kFrameLimit && frames.size() > 1;
  result->omitted_bytes = stack.outer_base_avma() - (too_many ? frames.end()[-2].cfa_avma : stack.end_avma());
  result->omitted_before = frames.size();
  frames.insert(frames.end(), outer.begin(), outer.end());
  result->end = StackEnd::kRoot;
}

}  // namespace stackd
