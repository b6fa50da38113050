// Parts of a line of folded stacks, "process;thread;outermost;...;innermost count". Source of the format:
// github.com/brendangregg/FlameGraph.
#pragma once

#include <string>
#include <vector>

#include "daemon/export/flat_stack.h"

namespace stackd {

// A name between the semicolons: it has none, and nothing that a terminal obeys.
std::string FoldedElement(std::string name);

// ";outermost;...;innermost"
std::string FoldedFrames(const std::vector<FlatFrame>& innermost_first);

}  // namespace stackd
