// How many frames of a dump there is memory for.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/byte_budget.h"
#include "daemon/capture/named_stack.h"

namespace stackd {

// The cost of a frame of a stack that no other thread has, from its unwinding to the answer. Measured for 400,000 to
// 1,000,000 frames: 490 to 540 bytes.
inline constexpr int64_t kFrameBytes = 540;

// After each stack is unwound. `frames` counts those of all threads, equal stacks too. From where they are more
// than there could be memory for, stacks are cut at once: FitFrames would cut them anyway.
void CutIfMany(const ByteBudget* budget, std::atomic<int64_t>* frames, NativeStack* stack);

// Takes memory for the stacks, at most half of the budget. Where that is too little, each is cut to
// its innermost frames, to one length for all, and `note` says so. The one with the index `whole` is not cut (-1: none).
// nullptr: there is no limit.
HeldBytes FitFrames(ByteBudget* budget, int whole, std::vector<NamedStack>* stacks, std::string* note);

}  // namespace stackd
