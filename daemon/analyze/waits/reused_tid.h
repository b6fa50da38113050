// Owners by the number of a thread that began when others waited for the lock already.
#pragma once

#include "daemon/capture/capture.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Drops owners that had not begun when a thread slept at the lock which has not run since. Older threads with their numbers
// took these locks. `dump` has the waits of its threads.
void DropReusedOwners(const Capture& capture, v1::Dump* dump);

}  // namespace stackd
