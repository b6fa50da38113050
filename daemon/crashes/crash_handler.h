// Where a crash goes, wherever it was taken from.
#pragma once

#include <functional>
#include <memory>

#include "daemon/capture/capture.h"

namespace stackd {

// Gets each crash once from a ring or the spool; a process that could not be sure writes its crash to both, with one id. To
// be called by the handler when it is on disk, or known from before: `release` lets the process die, or removes the file.
// Without it the process dies when its time is over and leaves a file, or the file stays.
using CrashHandler = std::function<void(std::shared_ptr<Capture> capture, const std::function<void()>& release)>;

}  // namespace stackd
