// What the kernel, and the container that stackd runs in, offer to a process that gives up rights.
#pragma once

namespace stackd {

struct KernelSupport {
  bool has_seccomp = false;
  int landlock_version = 0;  // 0: none
};

// Asks the kernel; changes nothing.
KernelSupport AskKernelSupport();

}  // namespace stackd
