// The second argument of futex(2), decoded.
#pragma once

#include <cstdint>
#include <string>

namespace stackd {

// "FUTEX_WAIT_BITSET_PRIVATE|FUTEX_CLOCK_REALTIME"; "futex operation 99" for a command without a name.
std::string FutexOperationName(uint32_t operation);

}  // namespace stackd
