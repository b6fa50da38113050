// Takes from the symbol worker what it does not need to read files that a hostile process may have made.
#pragma once

#include <cstdint>

namespace stackd {

// No core files, at most `memory_limit_bytes` of private writable memory, few files.
void LimitResources(uint64_t memory_limit_bytes);

// From now on: no new programs, no network, no signals to others, and no file but below a folder that is already open.
// The last is for libdw, which opens .dwo and dwz files at absolute paths that the file it reads states. System calls that
// are not allowed fail with EPERM. Where the kernel or the container forbids filters, nothing changes.
void ForbidSystemCalls();

}  // namespace stackd
