// Puts a FrameGuard in front of each connection that gRPC reads.
//
// gRPC has no place for one, so its calls of recvmsg and sendmsg (without TLS), SSL_read and SSL_write (with it) are bound
// to ours when the daemon is linked: "--wrap" in BUILD. Nothing is copied and no thread is added; a connection that breaks
// the rules reads an error.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace stackd {

// Numbers above cannot be guarded.
inline constexpr int kMaxGuardedFd = 1 << 16;

// How many connections of one caller were ended.
using EndedCount = std::shared_ptr<std::atomic<int64_t>>;

// From now on what is read from the socket is looked at, until it is closed. Before gRPC has it. False: its number is too
// high.
bool GuardConnection(int fd, EndedCount ended);

// Connections that were ended, since start.
int64_t GuardedConnectionsEnded();

}  // namespace stackd
