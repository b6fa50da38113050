// Threads that wait for a threading.RLock of CPython, and its owner, which it keeps (a threading.Lock does not).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/capture/managed.h"
#include "daemon/capture/waits.h"
#include "daemon/process/process_files.h"

namespace stackd {

// Finds the threads whose futex belongs to such an object, by its type. A wait with a timeout has no owner, since it is
// part of no cycle. With musl there is no owner either.
std::vector<ManagedWait> FindRLockWaits(std::span<const ThreadWait> sleeping, const ProcessFiles& memory,
                                        int64_t deadline_ns);

}  // namespace stackd
