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

// What a frame of a stack that no other thread has costs, from its unwinding to the answer: 490 to 540 bytes measured, for
// 400,000 to 1,000,000 frames.
inline constexpr int64_t kFrameBytes = 540;

// After each stack is unwound. `frames` counts those of all threads, equal stacks too. Where they are more than there could
// be memory for, the rest of the stacks are cut at once, so that not all are there before FitFrames cuts them.
void CutIfMany(const ByteBudget* budget, std::atomic<int64_t>* frames, NativeStack* stack);

// Takes memory for the stacks, at most half of the budget. Where it is less than they need, each is cut to its innermost
// frames, to one length for all, and `note` says so; but the one with the index `whole` (-1: none). nullptr: there is no
// limit.
HeldBytes FitFrames(ByteBudget* budget, int whole, std::vector<NamedStack>* stacks, std::string* note);

}  // namespace stackd
