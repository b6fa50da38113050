// What the traces of a thread take in memory.
#pragma once

#include <cstddef>
#include <vector>

#include "daemon/capture/managed_trace.h"

namespace stackd {

size_t BytesOf(const std::vector<ManagedTrace>& traces);

}  // namespace stackd
