// Threads of Java that wait for classes which others of them initialize.
#pragma once

#include <vector>

#include "daemon/analyze/findings/wait_scene.h"

namespace stackd {

void FindClassCircles(WaitScene* scene, std::vector<v1::Finding>* findings);

}  // namespace stackd
