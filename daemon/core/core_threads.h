// The threads of a core, and the signal that ended the process.
#pragma once

#include <cstdint>

#include "daemon/base/result.h"
#include "daemon/capture/capture.h"
#include "daemon/core/core_file.h"
#include "daemon/process/process_files.h"

namespace stackd {

// Fills in `capture->threads`, by the agent's own code (outside/agent_code.h), which reads memory as it was told. `maps_fd`
// has the text of the capture's map. Threads that are not read by the deadline have no stack, and the capture is partial.
// The first is always read.
Result<void> ReadCoreThreads(const CoreFile& core, int maps_fd, int64_t deadline_ns, Capture* capture);

// Fills in `capture->crash`, if the core is of a process that a signal has ended. The capture has its map. `files` reads
// memory.
void AddCrashOfCore(const CoreFile& core, const ProcessFiles& files, Capture* capture);

}  // namespace stackd
