// Goroutines that wait for locks.
#pragma once

#include <vector>

#include "daemon/analyze/findings/wait_scene.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Go keeps no owner of a lock. A goroutine waits for one while another runs, which is what locks are for. It is worth a
// word where that has lasted, or where none runs: then the owner waits itself.
void FindWaitingGoroutines(const WaitScene& scene, std::vector<v1::Finding>* findings);

}  // namespace stackd
