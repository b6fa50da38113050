// Puts a FrameGuard in front of each connection that gRPC reads.
//
// gRPC has no place for one. So the linker binds its calls of recvmsg and sendmsg (without TLS), SSL_read and SSL_write
// (with it) to those here ("--wrap" in BUILD). Nothing is copied and no thread is added; a connection that breaks the rules
// reads an error.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace stackd {

// Numbers above cannot be guarded.
inline constexpr int kMaxGuardedFd = 1 << 16;

// Count of the connections of one caller that were ended.
using EndedCount = std::shared_ptr<std::atomic<int64_t>>;

// Looks at what is read from the socket from now on, until it is closed. To be called before gRPC has it. False: its number
// is too high.
bool GuardConnection(int fd, EndedCount ended);

// Connections that were ended, since start.
int64_t GuardedConnectionsEnded();

}  // namespace stackd
