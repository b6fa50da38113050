// Who waits for a threading.RLock of CPython's, and who has it: unlike threading.Lock it keeps that.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/capture/managed.h"
#include "daemon/capture/waits.h"
#include "daemon/process/process_files.h"

namespace stackd {

// Finds the threads whose futex belongs to such an object, by its type. A wait that ends after a time has no owner, since
// no circle is made of it. With musl there is none either.
std::vector<ManagedWait> FindRLockWaits(std::span<const ThreadWait> sleeping, const ProcessFiles& memory,
                                        int64_t deadline_ns);

}  // namespace stackd
