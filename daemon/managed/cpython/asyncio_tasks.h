// Tasks of asyncio, which CPython publishes from 3.14 on for readers from outside: names and awaited coroutines.
#pragma once

#include <cstdint>
#include <set>

#include "daemon/managed/runtime_reader.h"

namespace stackd {

// Adds tasks and their stacks of all threads of `interpreters` (addresses of PyInterpreterState), and a note where some are
// missing. `version`: PY_VERSION_HEX >> 16. Adds nothing before 3.14, and where asyncio is not loaded.
void AddAsyncioTasks(const RuntimeInput& input, uint32_t version, const std::set<uint64_t>& interpreters,
                     ManagedFacts* facts);

}  // namespace stackd
