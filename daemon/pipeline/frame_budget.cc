#include "daemon/pipeline/frame_budget.h"

#include <algorithm>

namespace stackd {
namespace {

// Frames that stay of a stack which will be cut anyway.
constexpr size_t kCutFrames = 256;

// The frames of all stacks together, if each were cut to `limit`.
size_t FramesWith(size_t limit, int whole, const std::vector<NamedStack>& stacks) {
  size_t frames = 0;
  for (size_t i = 0; i < stacks.size(); ++i) {
    const size_t own = stacks[i].native.frames.size();
    frames += static_cast<int>(i) == whole ? own : std::min(own, limit);
  }
  return frames;
}

}  // namespace

void CutIfMany(const ByteBudget* budget, std::atomic<int64_t>* frames, NativeStack* stack) {
  if (budget == nullptr) return;
  const auto own = static_cast<int64_t>(stack->frames.size());
  const bool is_many = frames->fetch_add(own) + own > budget->limit_bytes() / kFrameBytes;
  if (!is_many || stack->frames.size() <= kCutFrames) return;
  stack->frames.resize(kCutFrames);
  stack->frames.shrink_to_fit();
  stack->end = StackEnd::kFrameLimit;
}

HeldBytes FitFrames(ByteBudget* budget, int whole, std::vector<NamedStack>* stacks, std::string* note) {
  HeldBytes held(budget);
  if (budget == nullptr) return held;
  const size_t wanted = FramesWith(SIZE_MAX, whole, *stacks);
  const int64_t most_bytes = std::min(static_cast<int64_t>(wanted) * kFrameBytes, budget->limit_bytes() / 2);
  const auto room = static_cast<size_t>(held.TakeSome(most_bytes) / kFrameBytes);
  if (room >= wanted) return held;
  // The greatest limit that fits; at least one frame, which says where a thread is.
  size_t fits = 1, too_many = wanted;
  while (fits + 1 < too_many) {
    const size_t middle = fits + (too_many - fits) / 2;
    (FramesWith(middle, whole, *stacks) <= room ? fits : too_many) = middle;
  }
  for (size_t i = 0; i < stacks->size(); ++i) {
    NativeStack& stack = (*stacks)[i].native;
    if (static_cast<int>(i) == whole || stack.frames.size() <= fits) continue;
    stack.frames.resize(fits);
    stack.end = StackEnd::kFrameLimit;
  }
  *note =
      "this daemon has no memory for all frames of its stacks: each was cut to its " + std::to_string(fits) + " innermost";
  return held;
}

}  // namespace stackd
