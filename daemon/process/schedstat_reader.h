// How often and how long the threads of a process have run, where it has passed its folder, without its helper.
#pragma once

#include <vector>

#include "daemon/base/result.h"
#include "daemon/capture/waits.h"
#include "daemon/process/process_files.h"

namespace stackd {

// Reads each thread, by tid. kUnavailable: the kernel does not tell, the process has ended, or it has too many threads.
Result<std::vector<ThreadSchedStat>> ListSchedStats(const ProcessFiles& files);

}  // namespace stackd
