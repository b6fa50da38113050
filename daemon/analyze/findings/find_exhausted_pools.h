// Threads that wait for a connection, or another thing that a pool of a well-known library lends.
#pragma once

#include <vector>

#include "daemon/analyze/findings/wait_scene.h"

namespace stackd {

void FindExhaustedPools(WaitScene* scene, std::vector<v1::Finding>* findings);

}  // namespace stackd
