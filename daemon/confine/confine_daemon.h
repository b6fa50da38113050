// What the daemon gives up for itself before it reads a byte of others.
#pragma once

#include "daemon/confine/kernel_support.h"

namespace stackd {

struct Confinement {
  bool memory_closed = false;  // to other processes of the daemon's user
  bool calls_refused = false;  // by the daemon's filter of system calls
  KernelSupport worker;        // what the symbol worker is confined by, or does not start without
};

// Closes memory, environment and fds of the daemon to other processes of its user, and turns off core dumps. The memory
// holds what programs have handed over.
bool CloseOwnMemory();

// Refuses what the daemon never does: to trace or write another process, to mount, to load kernel modules, to change
// namespaces or the clock. Binds every thread and program started later. False if the kernel refused.
bool RefuseWhatIsNeverNeeded();

// Does both, before any thread is started, and logs what is missing. `runs_programs` leaves out the second: an operator's
// program may be a debugger, or need the rights of another user.
Confinement ConfineDaemon(bool runs_programs);

}  // namespace stackd
