// Takes from the symbol worker what it does not need to read files that a hostile process may have made.
#pragma once

#include <cstdint>

namespace stackd {

// No core files, at most `memory_limit_bytes` of private writable memory, few files.
void LimitResources(uint64_t memory_limit_bytes);

// Lets this process only read and write what it has open: no path, program, thread or network, no new code, no signal but
// to itself. System calls that are not allowed fail with EPERM. What the kernel lacks (AskKernelSupport) is left out. False
// if the kernel has it and refuses: then no file of another process may be read.
bool ForbidAllButOpenFiles();

}  // namespace stackd
