// Waits that nothing in the process can end, as far as can be seen.
#pragma once

#include <vector>

#include "daemon/analyze/findings/wait_scene.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

void FindUnwakeable(WaitScene* scene, std::vector<v1::Finding>* findings);

}  // namespace stackd
