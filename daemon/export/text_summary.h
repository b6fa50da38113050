// What both text formats say around the stacks.
#pragma once

#include <string>

#include "daemon/export/piecewise.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Two lines and an empty one: which process, how many threads, how long; which dump.
void WriteHeading(const v1::Dump& dump, Piecewise* out);

// The threads without a stack, if there are any, and why.
void WriteNotCaptured(const v1::Dump& dump, Piecewise* out);

void WriteNotes(const v1::Dump& dump, Piecewise* out);

// Name of a thread as it is printed.
std::string ThreadName(const v1::Thread& thread);

}  // namespace stackd
