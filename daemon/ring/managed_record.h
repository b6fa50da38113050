// The managed part of a THREAD record (ring_abi.h), checked for form.
#pragma once

#include <span>
#include <vector>

#include "daemon/capture/managed_trace.h"

namespace stackd {

// Entries that make no sense end what is taken: those before them stand.
std::vector<ManagedTrace> ParseManaged(std::span<const char> record);

}  // namespace stackd
