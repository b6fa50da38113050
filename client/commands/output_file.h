// Output that goes to a file which the user names.
#pragma once

#include <functional>
#include <string>

#include "client/options.h"
#include "daemon/export/export.h"

namespace stackd {

// False, and standard error says what to do: what is no text would go to a terminal.
bool MayPrint(const Options& options);

// Lets `write` write a file, which has another name until it is whole and `write` gave kOk. Gives that exit code, or that
// of what went wrong with the file.
int WriteFile(const std::string& path, const std::function<int(const Sink&)>& write);

}  // namespace stackd
