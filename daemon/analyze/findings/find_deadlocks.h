// Threads that wait for each other in a cycle.
#pragma once

#include <vector>

#include "daemon/analyze/findings/wait_scene.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Adds a finding for each cycle, with those that wait behind it.
void FindDeadlocks(WaitScene* scene, std::vector<v1::Finding>* findings);

}  // namespace stackd
