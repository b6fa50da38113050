// Functions that end in a jump to another one, which then returns in their place.
#pragma once

#include <cstdint>

#include "daemon/modules/module.h"

namespace stackd {

// Whether the function [begin_svma, end_svma) may; true where its code cannot be read, or is too much.
bool MayJumpOut(const Module& module, uint64_t begin_svma, uint64_t end_svma);

}  // namespace stackd
