// How a stack ended, in words.
#pragma once

#include <string>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

inline bool IsWhole(const v1::Stack& stack) { return stack.end() == v1::Stack::ROOT; }

// Why there are no more frames: "no unwind information in libfoo.so". Empty for a whole stack.
std::string StackEndInWords(const v1::Stack& stack);

}  // namespace stackd
