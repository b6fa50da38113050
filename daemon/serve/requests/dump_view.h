// A dump cut to what a caller asked for and to what a stock client accepts.
#pragma once

#include <cstddef>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Stock clients refuse messages above 4 MiB. The rest is for framing, and a margin whose need was not measured.
inline constexpr size_t kAnswerBudgetBytes = 3584u << 10;

// Cuts groups, threads, stacks, modules, lines, and what a crash's fingerprint is made of. Findings are their sentences.
v1::Dump BasicView(const v1::Dump& dump);

// Gives `dump` as `view` says (UNSPECIFIED means FULL), at most about `budget_bytes` large: the largest groups first, then
// threads, then the stacks they refer to. What was left out is counted in omitted_group_count, and a note says how to get
// it.
v1::Dump ViewOf(const v1::Dump& dump, v1::DumpView view, size_t budget_bytes = kAnswerBudgetBytes);

}  // namespace stackd
