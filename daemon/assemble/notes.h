// What is missing in a dump and why, as sentences for an operator.
#pragma once

#include <string>
#include <vector>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Worst first: threads that are missing, stacks that are cut, names that are not known. `threads_of_stack[i]` is the number
// of threads that have `dump.stacks(i)`. Reads thread_counts and stacks of the dump.
std::vector<std::string> NotesOn(const v1::Dump& dump, const std::vector<int>& threads_of_stack);

}  // namespace stackd
