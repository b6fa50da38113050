// The worker's side: gives up its rights, then reads requests from a socket until it closes.
#pragma once

#include <cstdint>
#include <functional>

#include "daemon/base/fd.h"

namespace stackd {

// Gives up the rights of this process, a worker that has just been started, and calls `serve` with the socket to the
// daemon. `statm` is /proc/self/statm. Returns the exit code of the process; kWorkerUnconfined without a call if the kernel
// refused.
int RunConfined(uint64_t memory_limit_bytes, const std::function<int(Fd socket, Fd statm)>& serve);

}  // namespace stackd
