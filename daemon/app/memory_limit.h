// How much memory the daemon may use before the kernel ends it.
#pragma once

#include <cstdint>
#include <string>

namespace stackd {

// The least limit of its cgroups, of version 1 or 2 (cgroups(7)); else what the machine has.
int64_t MemoryLimitBytes();

// The limit of a process whose /proc/PID/cgroup has this text. Cgroups are mounted at `root`. A path that is not there, as
// in a cgroup namespace, counts as the root.
int64_t MemoryLimitBytes(const std::string& cgroup_text, const std::string& root, int64_t machine_bytes);

}  // namespace stackd
