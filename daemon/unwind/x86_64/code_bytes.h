// Reads the code of a process out of the files that it has mapped.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/modules/address_map.h"

namespace stackd {

// Exactly `size_bytes` from `avma`, as the ELF file has them; nullopt where no file is mapped or it ends earlier. Code that
// the process changed in memory reads as it was before.
std::optional<std::vector<uint8_t>> ReadCode(const AddressMap& map, uint64_t avma, uint32_t size_bytes);

// Whether a call stands before `avma`, as before each return address; true where it is code that cannot be read.
bool MayFollowCall(const AddressMap& map, uint64_t avma);

// Where the call before `return_avma` leads; nullopt if it does not say, or there is none.
std::optional<uint64_t> TargetOfCallBefore(const AddressMap& map, uint64_t return_avma);

}  // namespace stackd
