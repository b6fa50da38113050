// Runtimes whose functions stackd does not read: a dump that shows their interpreter alone says so, and what helps.
#pragma once

#include <string>
#include <vector>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

// A sentence for each such runtime of which a thread has a frame. Where the runtime makes code, none if all code outside of
// files has names. `threads_of_stack` as in NotesOn.
std::vector<std::string> NotesOnUnreadRuntimes(const v1::Dump& dump, const std::vector<int>& threads_of_stack);

}  // namespace stackd
