// What both text formats say around the stacks.
#pragma once

#include <string>

#include "daemon/export/piecewise.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// The thread that crashed, if the dump is of a crash and has it.
const v1::Thread* CrashedThread(const v1::Dump& dump);

// nullptr if it has none.
const v1::Stack* StackOf(const v1::Dump& dump, const v1::Thread& thread);

// Which process, and what it died of; which dump; how many threads, how long.
void WriteHeading(const v1::Dump& dump, Piecewise* out);

// What is wrong, worst first, with its details; nothing if all is well.
void WriteFindings(const v1::Dump& dump, Piecewise* out);

// What is as it should be, one line each.
void WriteHarmless(const v1::Dump& dump, Piecewise* out);

// The threads without a stack, if there are any, and why.
void WriteNotCaptured(const v1::Dump& dump, Piecewise* out);

void WriteNotes(const v1::Dump& dump, Piecewise* out);

// Name of a thread as it is printed.
std::string ThreadName(const v1::Thread& thread);

}  // namespace stackd
