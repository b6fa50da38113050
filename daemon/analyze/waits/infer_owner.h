// Owners of locks that keep no record of theirs, where the stacks leave no doubt.
#pragma once

#include <vector>

#include "daemon/analyze/waits/wait_function.h"
#include "daemon/analyze/waits/wait_place.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// `functions[i]` is what thread i of the dump waits in. Sets owner, owner_tid and owner_note of waits whose owner is not
// recorded, and the kind of internal locks.
void InferOwners(const std::vector<const WaitFunction*>& functions, const WaitPlaces& places, v1::Dump* dump);

}  // namespace stackd
