// Opens a file whose path another process chose.
#pragma once

#include <string>

#include "daemon/base/fd.h"

namespace stackd {

// Opens for reading; invalid if the path is anything but a regular file. Checks the type before the open, because opening a
// device may have effects. `follow_link`: whether the last part of the path may be a symbolic link.
Fd OpenRegularFile(const std::string& path, bool follow_link);

}  // namespace stackd
