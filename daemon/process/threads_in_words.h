// What the kernel says of the threads of a process that does not answer.
#pragma once

#include <string>

#include "daemon/process/process_files.h"

namespace stackd {

// "12 worker (sleeping in futex_do_wait), 1 main (running)": equal ones counted, the most frequent first; the kernel's wait
// channel where it tells it. Empty if there is nothing to read.
std::string ThreadsInWords(const ProcessFiles& files);

}  // namespace stackd
