// What the daemon gives up for itself before it reads a byte of others.
#pragma once

#include "daemon/confine/kernel_support.h"

namespace stackd {

struct Confinement {
  bool memory_closed = false;  // to other processes of the daemon's user
  bool calls_refused = false;  // by the daemon's filter of system calls
  KernelSupport worker;        // what the symbol worker is confined by, or does not start without
};

// Closes memory, environment and fds of the daemon to other processes of its user, and makes no core: the memory holds what
// programs have handed over.
bool CloseOwnMemory();

// Refuses from now on what the daemon never does, for every thread started later and every program: to trace or write
// another process, to mount, to load code into the kernel, to change namespaces or the clock. False if the kernel refused.
bool RefuseWhatIsNeverNeeded();

// Both, before any thread is started, and a line of the log for what is missing. With `runs_programs` without the second:
// an operator's program may be a debugger, or need the rights of another user.
Confinement ConfineDaemon(bool runs_programs);

}  // namespace stackd
