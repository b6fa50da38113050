// Threads of Ruby that wait for the global VM lock or for a Mutex, and who has it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "daemon/capture/managed.h"
#include "daemon/managed/ruby/ruby_objects.h"
#include "daemon/managed/runtime_reader.h"

namespace stackd {

// `threads`: rb_thread_t by tid.
std::vector<ManagedWait> FindRubyWaits(const std::map<int32_t, uint64_t>& threads, const Capture& capture,
                                       const RubyObjects& objects);

// Finds who of `input.sleeping` waits for a Mutex now, and who waits still for the lock of a VM of `input.waits`.
std::vector<ManagedWait> ReadRubyWaits(const WaitInput& input, const RubyObjects& objects);

}  // namespace stackd
