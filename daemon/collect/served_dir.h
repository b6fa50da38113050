// The folder that agents find the daemon in.
#pragma once

#include <string>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"

namespace stackd {

struct ServedDir {
  Fd lock;      // held as long as a daemon serves the folder
  Fd listener;  // stackd.sock
};

// Fails with one sentence that says what to change. A socket left behind by a dead daemon is replaced.
Result<ServedDir> ServeDir(const std::string& dir);

}  // namespace stackd
