// Threads that the kernel does not let run.
#pragma once

#include "daemon/capture/capture.h"

namespace stackd {

// As /proc says it: "t" is a tracing stop.
inline bool IsInDebugger(const ThreadCapture& thread) { return thread.kernel_state == 't'; }

// Whether the freezer of its cgroup stops the thread: the kernel's functions where such threads are, with cgroup 2 and 1.
inline bool IsFrozen(const ThreadCapture& thread) {
  return thread.wait_channel == "do_freezer_trap" || thread.wait_channel.ends_with("__refrigerator");
}

inline bool IsStopped(const ThreadCapture& thread) {
  return thread.status == ThreadStatus::kStopped || thread.kernel_state == 'T' || IsInDebugger(thread) || IsFrozen(thread);
}

}  // namespace stackd
