// Executors of Java and Python whose workers all wait for results inside of tasks, so that no other task runs.
#pragma once

#include <vector>

#include "daemon/analyze/findings/wait_scene.h"

namespace stackd {

void FindStarvedExecutors(WaitScene* scene, std::vector<v1::Finding>* findings);

}  // namespace stackd
