// Native frames and those of a runtime become one stack, innermost first.
//
// A frame with an anchor stands in the native frame that holds this address: between the CFA of the frame below and its
// own. What runs an interpreted function is not shown beside it; the frames of runtimes take its place. Where there are no
// anchors the native frames of the interpreter's function are counted off, an activation each. What finds no place stands
// at the end, marked as unplaced: nothing is dropped.
#pragma once

#include <vector>

#include "daemon/collect/managed.h"
#include "daemon/group/named_stack.h"

namespace stackd {

// Puts the frames into `stack->locations`: the SourceFrames of the native frame that ran them.
void MergeManaged(const std::vector<ManagedStack>& managed, NamedStack* stack);

}  // namespace stackd
