// abseil's search for deadlocks among its own locks, which are gRPC's.
#pragma once

#include <absl/synchronization/mutex.h>

namespace stackd {

// Debian builds abseil with it: each lock taken is an edge in a graph of the whole process, and a cycle, though nothing may
// ever wait in it, ends the program. Before the first use of gRPC.
inline void TurnOffLockGraph() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

}  // namespace stackd
