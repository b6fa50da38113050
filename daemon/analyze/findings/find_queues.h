// Threads that queue for a lock which some other thread has: what keeps that thread from giving it back.
#pragma once

#include <vector>

#include "daemon/analyze/findings/wait_scene.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Adds a finding for each lock that something is to be said of. Leaves out waits that are explained already, and marks
// those that it tells, and the owner's, as explained.
void FindQueues(WaitScene* scene, std::vector<v1::Finding>* findings);

}  // namespace stackd
