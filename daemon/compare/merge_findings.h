// The findings of two dumps as one list.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Worst first: `loops`, those of the later dump, and those that only the earlier one has. Each says, as a detail, which of
// the dumps it is from. What ended by itself was no hang: such a finding is SUSPICIOUS at most. `ran`: the threads that did
// between the two.
std::vector<v1::Finding> MergeFindings(const v1::Dump& before, const v1::Dump& after, const std::set<int32_t>& ran,
                                       std::vector<v1::Finding> loops);

}  // namespace stackd
