// What is no hang, or none of the process's own making: threads that wait for work, and a process that is stopped.
#pragma once

#include <vector>

#include "daemon/analyze/findings/wait_scene.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Threads that a signal, a debugger or the freezer of their cgroup has stopped, each in one finding.
void FindStopped(WaitScene* scene, std::vector<v1::Finding>* findings);

// One finding for all idle threads that no other finding has explained.
void FindIdle(WaitScene* scene, std::vector<v1::Finding>* findings);

}  // namespace stackd
