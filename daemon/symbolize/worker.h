// The worker's side: reads requests from a socket until it closes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/fd.h"

namespace stackd {

// Returns the exit code of the process. Ends the process itself when memory runs out.
int ServeSymbolRequests(Fd socket, uint64_t memory_limit_bytes, const std::vector<std::string>& debug_dirs);

}  // namespace stackd
