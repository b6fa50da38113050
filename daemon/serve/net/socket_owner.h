// Asks the kernel who owns the other end of a TCP connection from this machine.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <optional>

namespace stackd {

// `peer` is the address of the other end of `fd`. nullopt: the kernel does not tell, or the other end is closed already.
std::optional<uid_t> OwnerOfPeer(const sockaddr_storage& peer, int fd);

}  // namespace stackd
