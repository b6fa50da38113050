// Native frames and those of a runtime become one stack, innermost first.
//
// A frame with an anchor stands in the native frame that holds this address: between the CFA of the frame below and its
// own. What runs an interpreted function is not shown beside it; the frames of runtimes take its place. Where there are no
// anchors the native frames of the interpreter's function are counted off, an activation each. What finds no place stands
// at the end, marked as unplaced: nothing is dropped.
#pragma once

#include <string>
#include <vector>

#include "daemon/collect/managed.h"
#include "daemon/group/named_stack.h"

namespace stackd {

// Fills in `stack->runtime_calls`. `sp_avma`: the thread's stack pointer when it was captured.
void MergeManaged(const std::vector<ManagedStack>& managed, uint64_t sp_avma, NamedStack* stack);

// Equal for threads whose merged stacks are equal, if the program counters of their native stacks are.
std::string ManagedKey(const std::vector<ManagedStack>& managed, uint64_t sp_avma, const NativeStack& native);

}  // namespace stackd
