// A process and its descendants, as far as their agents are connected.
#pragma once

#include <string>
#include <vector>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

struct TreeMember {
  v1::Process process;
  int depth = 0;  // 0: the process itself
};

struct ProcessTree {
  std::vector<TreeMember> members;  // each before its children
  // Processes whose parent may be one of several with the same pid, in different PID namespaces. They are left out.
  std::vector<std::string> doubtful;
};

// The tree below the process that is called `root` ("processes/..."); empty if it is not among `processes`.
ProcessTree TreeOf(const std::string& root, const std::vector<v1::Process>& processes);

}  // namespace stackd
