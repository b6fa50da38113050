// What can be seen, without privilege, of why dumps do not work. Each check is one finding.
#pragma once

#include <string>
#include <vector>

#include "client/commands/finding.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// The folder that agents and this client meet the daemon in.
std::vector<Finding> CheckDir(const std::string& dir);

// The daemon's own problems, and the versions.
std::vector<Finding> CheckDaemon(const v1::Daemon& daemon);

// What agents said about their processes.
std::vector<Finding> CheckProcesses(const std::vector<v1::Process>& processes);

// Kernel settings, of this user and machine.
std::vector<Finding> CheckKernel();

}  // namespace stackd
