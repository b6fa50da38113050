// Landlock: a process gives up the file tree, for itself and for what it starts.
#pragma once

namespace stackd {

// Version of the kernel's interface; 0 where there is none.
int LandlockVersion();

// Forbids this thread every path, every TCP port and, where the kernel knows these, signals and abstract sockets of others.
// What is open stays open. Needs no_new_privs. False if the kernel refused.
bool ForbidPaths();

}  // namespace stackd
