// `stackd install-agent DIR`: puts the agent's library where the processes of other containers find it. An image without a
// shell has no cp, and cp would write over a library that processes have mapped.
#pragma once

#include <optional>
#include <string>

#include "daemon/base/result.h"

namespace stackd {

inline constexpr char kAgentFileName[] = "libstackd_agent.so";

// Where the agent lies in relation to the program: ../lib/stackd/ as in the image, or beside it, or ../agent/ as in a
// build. Fails with one sentence if it is in none of these.
Result<std::string> FindAgent(const std::string& program);

// Makes `dir` (its parents too) and in it a copy of `agent` that all users may read. What is there already is left alone if
// it is the same, else replaced in one step. A process that has the old one mapped keeps it.
Result<void> InstallAgent(const std::string& agent, const std::string& dir);

// The exit code if the arguments are `install-agent DIR`; nothing otherwise.
std::optional<int> InstallAgentIfAsked(int argc, const char* const* argv);

}  // namespace stackd
