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

// Finds those of `input.waits` that go on, with who has the lock now.
std::vector<ManagedWait> LookAtRubyWaitsAgain(const WaitInput& input, const RubyObjects& objects);

}  // namespace stackd
