// What the waits of a dump mean: deadlocks, queues, and who is merely idle.
#pragma once

#include "daemon/capture/capture.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Fills in `findings` of a dump whose threads have their waits, worst first.
void FindHangs(const Capture& capture, v1::Dump* dump);

}  // namespace stackd
