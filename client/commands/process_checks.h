// What /proc shows of one process: whether it is connected, and why it is not.
#pragma once

#include <string>
#include <vector>

#include "client/commands/finding.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// The connected process that has this pid here, whatever its pid is in its own namespace; nullptr: there is none. It is
// known by the innermost pid and the start time, of which the name is made.
const v1::Process* FindConnected(const std::string& proc, int pid, const std::vector<v1::Process>& processes);

// Why the process with this pid is not listed: what its maps, environment, status and root show. `proc` is "/proc", or a
// copy for tests.
std::vector<Finding> CheckProcess(const std::string& proc, int pid, const std::string& dir);

// What dump --pid may read of it without an agent.
std::vector<Finding> CheckOutside(const std::string& proc, int pid);

}  // namespace stackd
