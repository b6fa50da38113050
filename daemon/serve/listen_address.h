// Where the API may be served.
#pragma once

#include <string>

#include "daemon/base/result.h"

namespace stackd {

// "127.0.0.1:7443", "[::1]:7443" or "localhost:7443", as gRPC takes it and known to be free. Port 0 is any free port. Each
// failure is one sentence that says what to change.
Result<std::string> CheckListenAddress(const std::string& listen);

// The path of the API's socket in `dir`, fit to be bound: short enough, and no daemon behind it.
Result<std::string> CheckSocketPath(const std::string& dir);

}  // namespace stackd
