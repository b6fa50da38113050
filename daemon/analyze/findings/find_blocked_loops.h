// Event loops of one thread that waits inside of a callback, so that no other callback runs.
#pragma once

#include <vector>

#include "daemon/analyze/findings/wait_scene.h"

namespace stackd {

void FindBlockedLoops(WaitScene* scene, std::vector<v1::Finding>* findings);

}  // namespace stackd
