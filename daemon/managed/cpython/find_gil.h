// Threads that wait for CPython's global interpreter lock (GIL).
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "daemon/capture/capture.h"
#include "daemon/managed/runtime_reader.h"
#include "daemon/process/process_files.h"

namespace stackd {

// Finds threads that sleep on the condition variable of a GIL. The memory around their futex shows it: its last holder is a
// thread of one of the `interpreters` (addresses). `holders` are the threads that had a GIL when they were captured. Names
// the owner only if there is one interpreter and one holder.
std::vector<ManagedWait> FindGilWaits(const std::vector<ThreadCapture>& threads, const std::set<uint64_t>& interpreters,
                                      const std::set<int32_t>& holders, const ProcessFiles& memory);

// Returns those of `input.waits` for a GIL that still last, each with the owner that the lock names now.
std::vector<ManagedWait> ReadGilWaits(const WaitInput& input);

}  // namespace stackd
