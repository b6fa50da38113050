// What the threads of a capture wait for, as far as the memory of their process says.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "daemon/capture/capture.h"
#include "daemon/capture/waits.h"
#include "daemon/process/confirm_waits.h"
#include "daemon/process/lock_layout.h"
#include "daemon/process/memory_reader.h"
#include "daemon/process/process_files.h"

namespace stackd {

// Whether anything of it lies in memory.
bool WaitsInMemory(const SystemCall& call);

struct WaitFacts {
  size_t futex_count = 0;                          // that they wait on, looked at or not
  std::vector<FutexWord> futexes;                  // by address
  std::map<int32_t, std::vector<int32_t>> polled;  // tid -> fds that it polls or selects
};

// Ends soon after `deadline_ns`, with what there is; may wait for longer (memory_reader.h).
WaitFacts ReadWaitFacts(const ProcessFiles& files, RwlockLayout layout, std::span<const ThreadCall> calls,
                        int64_t deadline_ns);

// Fills in what the threads of `capture` wait for, of what lies in the memory of their process: `memory` reads it, by
// `deadline_ns`. Adds a note where it could not, or not all of it. Gives the calls that it has looked at.
std::vector<ThreadCall> AddWaitFacts(const MemoryReader& memory, int64_t deadline_ns, Capture* capture);

}  // namespace stackd
