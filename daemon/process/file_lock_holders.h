// Which processes have the file locks that threads of one wait for, as far as the kernel tells.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "daemon/capture/waits.h"
#include "daemon/process/process_files.h"

namespace stackd {

// A wish of threads of one process.
struct FileLockWait {
  int32_t fd = -1;
  FileLockKind kind = FileLockKind::kFlock;
  int32_t tid = 0;  // of one of them
};

// For process `pid`, as the daemon's own /proc counts; `files` are its. Leaves out locks of which /proc/locks does not say
// for certain which one a wait is for. Processes have the names that the kernel keeps of them. `waits`: each fd and kind
// once.
//
// Ends soon after `deadline_ns`, but may wait for longer in the description of an open file, as memory_reader.h has it.
std::vector<FileLock> FindFileLockHolders(const ProcessFiles& files, int32_t pid, const std::vector<FileLockWait>& waits,
                                          int64_t deadline_ns);

}  // namespace stackd
