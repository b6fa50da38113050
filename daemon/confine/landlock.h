// Landlock: a process gives up the file tree, for itself and for what it starts.
#pragma once

#include <string>
#include <vector>

namespace stackd {

// Version of the kernel's interface; 0 where there is none.
int LandlockVersion();

// What a process keeps. A path that is not there is left out.
struct LandlockRules {
  bool reads = false;                      // any file, as its user may
  bool listens = false;                    // on TCP
  bool connects = false;                   // over TCP
  std::vector<std::string> written = {};   // files, and folders with all that is below them
  std::vector<std::string> executed = {};  // files
};

// Forbids this thread, and what it starts later, all else: paths, TCP and, where the kernel knows these, signals and
// abstract sockets of others. What is open stays open. Needs no_new_privs. False if the kernel refused.
//
// Whatever is kept, the process may no longer look into others as ptrace does: their maps, open files and memory.
bool RestrictByLandlock(const LandlockRules& rules);

}  // namespace stackd
