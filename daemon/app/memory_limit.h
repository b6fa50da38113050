// How much memory the daemon may use before the kernel ends it.
#pragma once

#include <cstdint>
#include <string>

namespace stackd {

// The least limit of its cgroups, of version 1 or 2 (cgroups(7)); else what the machine has.
int64_t MemoryLimitBytes();

// The same of a process whose /proc/PID/cgroup has this text, where cgroups are mounted at `root`. Paths that are not
// there, as in a cgroup namespace, count as the root.
int64_t MemoryLimitBytes(const std::string& cgroup_text, const std::string& root, int64_t machine_bytes);

}  // namespace stackd
