// The owner of a file lock, in words.
#pragma once

#include "daemon/analyze/waits/wait_owner.h"
#include "daemon/capture/capture.h"

namespace stackd {

// The lock that `thread` waits for, as the capture knows it; nullptr: it waits for none, or nothing is known.
const FileLock* FindFileLock(const Capture& capture, const ThreadCapture& thread);

// Says who must act before a wait for a lock of `kind` ends. `lock` may be nullptr.
WaitOwner FileLockOwner(FileLockKind kind, const FileLock* lock);

}  // namespace stackd
