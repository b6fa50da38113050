// Tasks of asyncio: names and awaited coroutines. CPython publishes them from 3.14 on; before, they are found
// (task_finder.h).
#pragma once

#include <cstdint>
#include <set>

#include "daemon/managed/runtime_reader.h"

namespace stackd {

// Adds tasks and their stacks of all threads of `interpreters` (addresses of PyInterpreterState), and a note where some are
// missing. `version`: PY_VERSION_HEX >> 16, of 3.8 to 3.14. Adds nothing where asyncio is not loaded.
void AddAsyncioTasks(const RuntimeInput& input, uint32_t version, const std::set<uint64_t>& interpreters,
                     ManagedFacts* facts);

}  // namespace stackd
