// What a system call waits for, as far as its arguments say.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/capture/system_call.h"
#include "daemon/capture/waits.h"

namespace stackd {

// The futex that a thread in `call` waits on; nullopt if it waits on none.
std::optional<uint64_t> WaitedFutex(const SystemCall& call);

// The fds that `call` names: of read(), accept(), epoll_wait(), flock(), both of splice(), ...
std::vector<int32_t> WaitedFds(const SystemCall& call);

// The kind of file lock that `call` waits for; nullopt: for none.
std::optional<FileLockKind> WaitedFileLock(const SystemCall& call);

// Where poll() or select() has its fds: in the process's memory.
struct FdTable {
  // An array of struct pollfd, or up to three fd_sets (0: none).
  bool is_poll = false;
  uint64_t avma[3] = {};
  uint32_t fd_count = 0;  // of the array; or the highest fd + 1
};
std::optional<FdTable> WaitedFdTable(const SystemCall& call);

// The thread that has the lock at this word, or is joined, by the word alone; 0: none. A word that is no known lock may be
// a tid: of a thread that inherits priority, or is joined.
int32_t HolderOf(const FutexWord& word);

}  // namespace stackd
