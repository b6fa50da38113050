// Stacks as viewers of profiles have them: one name a frame, and no remarks between.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

struct FlatFrame {
  // As the process has it: not yet fit for a terminal.
  std::string name;
  // nullptr: not a frame but the part of a deep stack that was not copied.
  const v1::Frame* frame;
};

// Innermost first. A recursion has each of its frames once, with its count.
std::vector<FlatFrame> FlatFrames(const v1::Stack& stack);

// "[no stack: blocks signal 34]": stands for the frames of a thread or task without a stack.
std::string NoStackInWords(std::string_view state);

// Names of threads by their number.
using ThreadNames = std::unordered_map<int32_t, std::string_view>;
ThreadNames NamesOfThreads(const v1::Dump& dump);

// How many threads of the group have each name.
std::map<std::string_view, int> CountsByName(const v1::StackGroup& group, const ThreadNames& names);

}  // namespace stackd
