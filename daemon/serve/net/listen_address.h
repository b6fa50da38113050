// Where the API may be served.
#pragma once

#include <string>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"

namespace stackd {

// A socket that listens, and its address with the port that it got: "127.0.0.1:7443".
struct ListeningSocket {
  Fd fd;
  std::string address;
};

// Listens at "127.0.0.1:7443", "[::1]:7443" or "localhost:7443"; with TLS at any address. Port 0 is any free port. Each
// failure is one sentence that says what to change, of the flag that gave the address.
Result<ListeningSocket> ListenAt(const std::string& flag, const std::string& listen, bool has_tls);

// The path of the API's socket in `dir`, fit to be bound: short enough, and no daemon behind it.
Result<std::string> CheckSocketPath(const std::string& dir);

// Listens at a path that CheckSocketPath gave; what a dead daemon left there is replaced. Only the socket's owner may
// connect.
Result<Fd> ListenAtPath(const std::string& path);

}  // namespace stackd
