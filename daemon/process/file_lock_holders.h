// Processes that have the file locks that threads of a process wait for, as far as the kernel tells.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "daemon/capture/waits.h"
#include "daemon/process/file_lock_procfs.h"
#include "daemon/process/file_locks.h"
#include "daemon/process/process_files.h"

namespace stackd {

// A file lock that threads of one process wait for.
struct FileLockWait {
  int32_t fd = -1;
  FileLockKind kind = FileLockKind::kFlock;
  int32_t tid = 0;  // of one of them
};

// Finds the holders for the waits of process `pid` (as the daemon's own /proc counts), whose files are `files`. Leaves out
// a wait if /proc/locks does not say for certain which lock it is for. Processes have the names that the kernel keeps of
// them. `waits`: each fd and kind once. `has_flock`: for a daemon that may not look itself.
//
// Ends soon after `deadline_ns`, but may wait for longer in the description of an open file, as memory_reader.h has it.
std::vector<FileLock> FindFileLockHolders(const ProcessFiles& files, int32_t pid, const std::vector<FileLockWait>& waits,
                                          int64_t deadline_ns, const AskFlock& has_flock = HasFlock);

}  // namespace stackd
