// The function that gets each crash, from a ring or from a file.
#pragma once

#include <functional>
#include <memory>

#include "daemon/capture/capture.h"

namespace stackd {

// Gets each crash once from a ring or the spool. A process that could not be sure writes its crash to both, with one id.
// The handler calls `release` when the crash is on disk, or known from before: it lets the process die, or removes the
// file. Without it the process dies when its time is over and leaves a file, or the file stays.
using CrashHandler = std::function<void(std::shared_ptr<Capture> capture, const std::function<void()>& release)>;

}  // namespace stackd
