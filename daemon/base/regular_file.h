// Opens a file whose path somebody else chose.
#pragma once

#include <string>

#include "daemon/base/fd.h"

namespace stackd {

// For reading; invalid if it is anything but a regular file. It is looked at before it is opened, because to open a device
// may do something. `follow_link`: whether its last part may be a symbolic link.
Fd OpenRegularFile(const std::string& path, bool follow_link);

}  // namespace stackd
