// What the agent wrote of a thread's Python frames, with names and lines.
#pragma once

#include <string>

#include "daemon/collect/managed.h"
#include "daemon/ring/managed_trace.h"

namespace stackd {

// "CPython 3.11.7", of a PY_VERSION_HEX.
std::string CpythonName(uint64_t version_hex);

// Why a walk did not reach the last frame; empty: it did.
std::string WalkProblem(int32_t status);

ManagedStack DecodeCpythonTrace(const ManagedTrace& trace);

}  // namespace stackd
