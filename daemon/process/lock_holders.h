// The threads of a capture that have locks or wait for them, looked at once more: words do not tell whether one sleeps.
#pragma once

#include <span>

#include "daemon/capture/capture.h"
#include "daemon/capture/waits.h"

namespace stackd {

// Whether a thread that has a lock, by its word, was captured outside of any system call. It may run, and it may sleep
// there until a page of its memory comes.
bool HasHolderOutsideCalls(const Capture& capture);

// Forgets on what threads wait whose word the process did not tell: they did not sleep there when it looked.
void ForgetUntold(Capture* capture);

// Sets the state of those that `sample` saw asleep where they were captured.
void MarkHoldersAsleep(std::span<const ThreadWait> sample, Capture* capture);

}  // namespace stackd
