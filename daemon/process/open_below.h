// Opens what lies in a folder that a process passed, and nothing else.
#pragma once

#include "daemon/base/fd.h"

namespace stackd {

// `path` is relative to `folder`, a folder of procfs; `flags` are those of open(). Follows no link and crosses no mount,
// since a process may put both there, and does not wait for the other end of a FIFO. Invalid, with errno: there is no such
// file on that procfs.
Fd OpenBelow(const Fd& folder, const char* path, int flags);

// Like OpenBelow, component by component, for kernels before 5.6 and sandboxes that refuse openat2().
Fd OpenBelowStepByStep(const Fd& folder, const char* path, int flags);

}  // namespace stackd
