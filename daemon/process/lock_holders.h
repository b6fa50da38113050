// The threads of a capture that have locks or wait for them, looked at again: lock words do not say whether one sleeps.
#pragma once

#include <span>

#include "daemon/capture/capture.h"
#include "daemon/capture/waits.h"

namespace stackd {

// Whether a thread that a lock's word names as its holder was captured outside of any system call. It may run, or sleep
// until a page of its memory comes.
bool HasHolderOutsideCalls(const Capture& capture);

// Removes the waits whose word the process did not tell: the threads did not sleep there when it looked.
void ForgetUntold(Capture* capture);

// Sets the state of the threads that `sample` saw asleep where they were captured.
void MarkHoldersAsleep(std::span<const ThreadWait> sample, Capture* capture);

}  // namespace stackd
