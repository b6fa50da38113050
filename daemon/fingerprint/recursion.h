// Frames of a stack that repeat themselves.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/capture/native_stack.h"

namespace stackd {

// The frames [begin, end) of a stack are the first `period` of them, again and again.
struct Recursion {
  size_t begin = 0;
  size_t end = 0;
  size_t period = 0;
  // Whole turns, with those that lie in the part of the stack that was not copied.
  int64_t turns = 0;
};

// By address, not overlapping. `keys[i]` stands for the function of `native.frames[i]`. Repetitions of at most eight frames
// that occur at least eight times.
//
// Where the run goes on behind a gap in the stack, the turns in the gap are computed from the distance in memory. A
// function needs the same number of bytes each time. So the number is right unless the recursion took turns of different
// lengths.
std::vector<Recursion> FindRecursion(std::span<const XXH128_hash_t> keys, const NativeStack& native);

}  // namespace stackd
