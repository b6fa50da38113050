// The threads that have the locks of a capture, looked at once more: words do not tell whether one sleeps.
#pragma once

#include <span>

#include "daemon/capture/capture.h"
#include "daemon/capture/waits.h"

namespace stackd {

// Whether a thread that has a lock, by its word, was captured outside of any system call. It may run, and it may sleep there
// until a page of its memory comes.
bool HasHolderOutsideCalls(const Capture& capture);

// Sets the state of those that `sample` saw asleep where they were captured.
void MarkHoldersAsleep(std::span<const ThreadWait> sample, Capture* capture);

}  // namespace stackd
