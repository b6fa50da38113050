// The heartbeats that a process has registered, out of the header of its ring.
#pragma once

#include <vector>

#include "daemon/capture/waits.h"
#include "daemon/ring/ring.h"

namespace stackd {

// Any thread, at any time. Checked for form, not for truth.
std::vector<Heartbeat> ReadHeartbeats(const Ring& ring);

}  // namespace stackd
