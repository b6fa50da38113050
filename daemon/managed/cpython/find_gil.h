// Who waits for CPython's global interpreter lock.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "daemon/capture/capture.h"
#include "daemon/managed/runtime_reader.h"
#include "daemon/process/process_files.h"

namespace stackd {

// Of the threads that sleep on a futex those whose futex is the condition variable of such a lock, as the memory around it
// shows: its last holder is a thread of one of the `interpreters` (addresses). `holders` are the threads that had it.
// The owner is named where there is no doubt: of one interpreter and one holder.
std::vector<ManagedWait> FindGilWaits(const std::vector<ThreadCapture>& threads, const std::set<uint64_t>& interpreters,
                                      const std::set<int32_t>& holders, const ProcessFiles& memory);

// Who of `input.waits` that waited for such a lock waits for it now, and who has it by its own word.
std::vector<ManagedWait> ReadGilWaits(const WaitInput& input);

}  // namespace stackd
