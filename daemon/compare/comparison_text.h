// A comparison as an operator reads it.
#pragma once

#include <string>
#include <vector>

#include "daemon/compare/verdict.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// One sentence. `comparison` has its verdict and findings; `threads` are in its order.
std::string ExplainComparison(const v1::DumpComparison& comparison, const std::vector<JudgedThread>& threads);

// All of it but what each thread did: threads that did the same share their lines. `dump` is one of those compared.
std::vector<std::string> ComparisonLines(const v1::Dump& dump, int dump_count, const v1::DumpComparison& comparison,
                                         const std::vector<JudgedThread>& threads);

}  // namespace stackd
