// What the daemon's own /proc says of file locks, and of the processes that have them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/capture/waits.h"
#include "daemon/process/file_locks.h"

namespace stackd {

// Whether numbers in /proc are those of the daemon's PID namespace.
bool OwnProcfsCountsAsDaemon();

// At most the first MiB of /proc/locks, by whole lines; empty if it cannot be read.
std::vector<HeldFileLock> ReadFileLocks();

// The kernel's name of a process; empty if it has ended, or the daemon may not know.
std::string NameOfProcess(int32_t pid);

// Whether a thread of it is in state R or D; of many threads the first are looked at.
bool HasRunningThread(int32_t pid);

// Whether the process that took a flock() has an open file with it. May wait in the description of an open file (epoll).
StillHolds HasFlock(const FileLockLine& taken, int64_t deadline_ns);

}  // namespace stackd
