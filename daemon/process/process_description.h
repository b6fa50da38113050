// What a process says of itself, as data that is shown.
#pragma once

#include <sys/types.h>

#include <string>

#include "daemon/capture/capture.h"
#include "stackd/wire.h"

namespace stackd {

// `uid` is the kernel's word. Times that a HELLO does not tell are 0.
ProcessDescription DescribeProcess(const stackd_hello& hello, uid_t uid, const std::string& id);

// Name to show for a process that has not named itself.
std::string DefaultName(const std::string& argv0, const std::string& executable);

// What dumps lose at this level, in one sentence; empty: nothing.
std::string LossOf(Share share);

}  // namespace stackd
