// Runtimes of tokio whose workers all wait inside of tasks, so that no other task runs.
#pragma once

#include <vector>

#include "daemon/analyze/findings/wait_scene.h"

namespace stackd {

void FindStarvedTokio(WaitScene* scene, std::vector<v1::Finding>* findings);

}  // namespace stackd
