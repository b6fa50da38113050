// Sockets by inode, out of the tables that /proc/PID/net has of the network namespace of a process.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace stackd {

// "tcp 10.0.0.7:80 -> 10.0.0.9:41234", "tcp listening on 0.0.0.0:80", "unix /run/db.sock", by inode.
using SocketNames = std::map<uint64_t, std::string>;

// Adds those of the text of /proc/net/tcp, tcp6, udp or udp6. `kind` is "tcp" or "udp".
void AddInternetSockets(std::string_view text, std::string_view kind, SocketNames* names);
// Adds those of the text of /proc/net/unix.
void AddUnixSockets(std::string_view text, SocketNames* names);

}  // namespace stackd
