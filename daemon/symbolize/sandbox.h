// Takes from the symbol worker what it does not need to read files that a hostile process may have made.
#pragma once

#include <cstdint>

namespace stackd {

// No core files, at most `memory_limit_bytes` of private writable memory, few files.
void LimitResources(uint64_t memory_limit_bytes);

// From now on this process reads and writes what it has open, and nothing else: no path of any kind, no program, thread or
// network, no new code, and no signal but to itself. System calls that are not allowed fail with EPERM. What the kernel
// lacks (AskKernelSupport) is left out; false if it has it and refuses: then nothing of others must be read.
bool ForbidAllButOpenFiles();

}  // namespace stackd
