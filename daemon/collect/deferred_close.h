// Lets go of what a process has handed over, on a thread of its own.
//
// Closing an fd may wait for as long as the process likes: a TCP socket lingers, a file of a FUSE mount is flushed by its
// server, and a Unix socket closes all that was sent through it and not read. The thread that serves all processes must not
// be the one that waits.
#pragma once

#include <memory>

namespace stackd {

// Drops the reference. Does not block.
void DeferClose(std::shared_ptr<void> object);

}  // namespace stackd
