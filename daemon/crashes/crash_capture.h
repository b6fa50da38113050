// Turns a crash record, from a ring or a file, into the parts of a Capture that come from it.
#pragma once

#include "daemon/capture/capture.h"
#include "daemon/ring/record.h"
#include "daemon/ring/recording.h"

namespace stackd {

// Fills in all but `from_spool`.
CrashCapture ToCrashCapture(const CrashRecord& record);

// Adds the thread that crashed, always. If its stack is missing, `capture` gets a note and is partial.
void AddCrashedThread(CrashRecord record, Recording* recording, Capture* capture);

}  // namespace stackd
