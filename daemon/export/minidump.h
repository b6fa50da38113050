// A capture as a minidump, for debuggers and crash reporters that know nothing of stackd.
#pragma once

#include "daemon/export/export.h"
#include "daemon/store/raw_capture.h"

namespace stackd {

// Writes the threads whose registers were captured, with their stacks as the agent filtered them. A word or a register that
// points neither into code nor into the stack is zero. A comment in the file says so, and what is missing.
void ExportMinidump(const RawCapture& raw, const Sink& sink);

}  // namespace stackd
