// Tells whether a call stands in a loop, as in a function that runs one task after the other.
#pragma once

#include <cstdint>

#include "daemon/modules/address_map.h"

namespace stackd {

// Whether the code after the call that returns to `return_avma` leads back to that call. False where the code cannot be
// read.
bool IsCalledInLoop(const AddressMap& map, uint64_t return_avma);

}  // namespace stackd
