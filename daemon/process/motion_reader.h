// How often and how long the threads of a process have run, where it has passed its folder: no helper of the agent's tells.
#pragma once

#include <vector>

#include "daemon/base/result.h"
#include "daemon/capture/waits.h"
#include "daemon/process/process_files.h"

namespace stackd {

// Of each thread, by tid; kUnavailable where the kernel does not tell, the process has ended, or has more threads than can
// be looked at.
Result<std::vector<ThreadMotion>> ReadMotions(const ProcessFiles& files);

}  // namespace stackd
