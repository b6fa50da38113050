// Pools all of whose threads wait, inside a task, for what only another task can bring about.
#pragma once

#include <vector>

#include "daemon/analyze/findings/wait_scene.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

void FindStarvedPools(WaitScene* scene, std::vector<v1::Finding>* findings);

}  // namespace stackd
