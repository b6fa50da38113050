// A capture as a minidump, for debuggers and crash reporters that know nothing of stackd.
#pragma once

#include "daemon/export/export.h"
#include "daemon/store/raw_capture.h"

namespace stackd {

// The threads whose registers were captured, with their stacks as the agent filtered them: a word that points neither into
// code nor into the stack is zero, and so is such a register. A comment in the file says so, and what is missing.
void ExportMinidump(const RawCapture& raw, const Sink& sink);

}  // namespace stackd
