#pragma once

#include "daemon/capture/capture.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

v1::Process ProcessMessage(const ProcessDescription& process);

}  // namespace stackd
