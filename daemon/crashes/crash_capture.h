// From a crash record to the parts of a Capture that come from it, whether it lay in a ring or in a file.
#pragma once

#include "daemon/capture/capture.h"
#include "daemon/ring/record.h"
#include "daemon/ring/recording.h"

namespace stackd {

// All but `from_spool`.
CrashCapture ToCrashCapture(const CrashRecord& record);

// The thread that crashed, always; `capture` gets a note and is partial if its stack is missing.
void AddCrashedThread(CrashRecord record, Recording* recording, Capture* capture);

}  // namespace stackd
