// Tasks of asyncio, which CPython publishes from 3.14 on for readers from outside: by name, each with the coroutines that
// it waits in.
#pragma once

#include <cstdint>
#include <set>

#include "daemon/managed/runtime_reader.h"

namespace stackd {

// Of all threads of `interpreters` (addresses of PyInterpreterState), of a CPython of `version` (PY_VERSION_HEX >> 16).
// Adds tasks and their stacks, and a note where some are missing. Nothing before 3.14, and where asyncio is not loaded.
void AddAsyncioTasks(const RuntimeInput& input, uint32_t version, const std::set<uint64_t>& interpreters,
                     ManagedFacts* facts);

}  // namespace stackd
