// Says who has a flock() where the daemon itself may not look into other processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "daemon/base/fd.h"
#include "daemon/capture/waits.h"
#include "daemon/process/file_locks.h"

namespace stackd {

// A process that was forked before Landlock bound the daemon. The kernel shows what others have open only to a process that
// might trace them, and Landlock takes that away. All that it answers is HasFlock of file_lock_procfs.h; each question has
// a child of its own, since one may wait in the kernel. Thread-safe. Ends with the daemon.
class FlockProcess {
 public:
  // Before any thread is started. nullptr if the kernel has no room for it.
  static std::unique_ptr<FlockProcess> Start();
  ~FlockProcess();

  // kNotKnown where there is no answer by the deadline.
  StillHolds HasFlock(const FileLockLine& taken, int64_t deadline_ns) const;

 private:
  FlockProcess(Fd socket, pid_t pid) : socket_(std::move(socket)), pid_(pid) {}

  Fd socket_;
  const pid_t pid_;
};

}  // namespace stackd
