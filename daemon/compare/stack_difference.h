// What two stacks of one thread have in common.
#pragma once

#include <cstddef>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

enum class StackDifference {
  kNone,       // every frame is at the same instruction
  kPlaces,     // the same functions, but not at the same instructions
  kFunctions,  // other functions
};

// Compares two stacks of a thread. An inlined function counts as part of its caller: a loop seen in one inlined function
// and then in another has not left its function.
//
// `in_system_call`: the thread is in one in both. Where the dump's signal interrupted the call, its innermost address is
// that of the call's instruction, to which the kernel returns. Where the thread was read asleep, it is the next one. Both
// are one place.
StackDifference DifferenceOf(const v1::Stack& a, const v1::Stack& b, bool in_system_call);

// How many functions, beginning with the thread's first one, both have in common.
size_t CommonFunctions(const v1::Stack& a, const v1::Stack& b);

// Functions of a stack, without those inlined into others.
size_t FunctionCount(const v1::Stack& stack);

// The `index`-th function of a stack, from the thread's first one; it has more than `index`.
const v1::Frame& FunctionFromRoot(const v1::Stack& stack, size_t index);

}  // namespace stackd
