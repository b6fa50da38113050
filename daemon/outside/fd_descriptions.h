// What the fds of a process are, for a person who reads that a thread waits for number 17. Nothing here looks at a file
// itself, which may be on a disk that does not answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/capture/waits.h"

namespace stackd {

// By number, each once, at most 256. `path` is the folder of the process. What an epoll instance watches is told by a
// process with at most 1,024 fds: the kernel holds the instance's mutex for the whole list. May wait for that mutex.
std::vector<WaitedFd> DescribeFds(const std::string& path, const std::vector<int32_t>& fds);

}  // namespace stackd
