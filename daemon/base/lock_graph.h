// abseil's search for deadlocks among its own locks, which are gRPC's.
#pragma once

#include <absl/synchronization/mutex.h>

namespace stackd {

// Turns off the search, which Debian's build of abseil has on. Each lock taken is an edge in a graph of the whole process.
// A cycle ends the program, even one in which no thread can ever wait. To be called before the first use of gRPC.
inline void TurnOffLockGraph() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

}  // namespace stackd
