// The findings of two dumps as one list.
#pragma once

#include <vector>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Worst first: `loops`, those of the later dump, and those that only the earlier one has. Each says, as a detail, which of
// the dumps it is from.
std::vector<v1::Finding> MergeFindings(const v1::Dump& before, const v1::Dump& after, std::vector<v1::Finding> loops);

}  // namespace stackd
