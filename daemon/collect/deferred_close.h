// Lets go of what a process has handed over, on a thread of its own.
//
// Closing an fd may wait for as long as the process likes. A TCP socket lingers. The server of a FUSE mount flushes a file.
// A Unix socket closes what was sent through it and not read. The thread that serves all processes must not wait.
#pragma once

#include <memory>

namespace stackd {

// Drops the reference. Does not block.
void DeferClose(std::shared_ptr<void> object);

}  // namespace stackd
