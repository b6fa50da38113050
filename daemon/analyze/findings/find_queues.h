// Threads that queue for a lock which some other thread has: what keeps that thread from giving it back.
#pragma once

#include <vector>

#include "daemon/analyze/findings/wait_scene.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Adds a finding for each lock that something is to be said of. Waits that are explained already are left out, and those
// told of become so, with the owner's.
void FindQueues(WaitScene* scene, std::vector<v1::Finding>* findings);

}  // namespace stackd
