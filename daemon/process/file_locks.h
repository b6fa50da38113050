// The text of /proc/locks: which file locks are held, and which processes wait for them.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "daemon/capture/waits.h"

namespace stackd {

// A file as the kernel names it there: by the device of its file system, which stat() may show otherwise.
struct LockedFile {
  uint32_t major = 0;
  uint32_t minor = 0;
  uint64_t inode = 0;

  auto operator<=>(const LockedFile&) const = default;
};

// A lock, or a request that waits for one.
struct FileLockLine {
  FileLockKind kind = FileLockKind::kFlock;
  bool is_read = false;
  // Process that locked or waits, in the PID namespace of that procfs. Negative where none is recorded, 0 where it is not
  // visible.
  int32_t pid = 0;
  LockedFile file;

  bool operator==(const FileLockLine&) const = default;
};

struct HeldFileLock {
  FileLockLine holder;
  // Requests that wait until the lock is released, some of them one after the other.
  std::vector<FileLockLine> waiters;

  bool operator==(const HeldFileLock&) const = default;
};

// Leaves out lines that make no sense, leases, and waiters without their holder. The lines "lock:" of /proc/PID/fdinfo/FD
// read the same without that word.
std::vector<HeldFileLock> ParseFileLocks(std::string_view text);

// Whether the process that took a flock() has an open file with it.
using AskFlock = std::function<StillHolds(const FileLockLine& taken, int64_t deadline_ns)>;

}  // namespace stackd
