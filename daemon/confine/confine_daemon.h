// What the daemon gives up for itself before it reads a byte of others.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "daemon/confine/kernel_support.h"

namespace stackd {

struct Confinement {
  bool memory_closed = false;  // to other processes of the daemon's user
  bool calls_refused = false;  // by the daemon's filter of system calls
  bool paths_closed = false;   // by the daemon's Landlock
  KernelSupport worker;        // what the symbol worker is confined by, or does not start without
};

// Closes memory, environment and fds of the daemon to other processes of its user, and turns off core dumps. The memory
// holds what programs have handed over.
bool CloseOwnMemory();

// Refuses what the daemon never does: to trace or write another process, to mount, to load kernel modules, to change
// namespaces or the clock. Binds every thread and program started later. False if the kernel refused.
bool RefuseWhatIsNeverNeeded();

// What the daemon keeps.
struct DaemonNeeds {
  bool runs_programs = false;             // of the operator
  bool connects = false;                  // to a collector
  std::vector<std::string> written = {};  // files, and folders
};

// Closes all paths by Landlock, but for those of `needs`. Files may be read as the user may, and this program may be
// executed. False if the kernel refused, or its Landlock is of before 5.19, which moves no file between folders.
bool CloseOtherPaths(const DaemonNeeds& needs);

// Does all three, before any thread is started, and logs what is missing. Only the first where the daemon runs programs:
// one may be a debugger, need the rights of another user, or write anywhere. `start_unbound` starts what the second must
// bind and the third must not; it is called only where there will be a third.
Confinement ConfineDaemon(const DaemonNeeds& needs, const std::function<void()>& start_unbound);

}  // namespace stackd
