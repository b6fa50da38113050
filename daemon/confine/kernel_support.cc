#include "daemon/confine/kernel_support.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include "daemon/confine/landlock.h"

namespace stackd {

KernelSupport AskKernelSupport() {
  // A kernel with filters reads the filter first, and there is none at address 0.
  errno = 0;
  const bool has_seccomp = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, nullptr, 0, 0) != 0 && errno == EFAULT;
  return {has_seccomp, LandlockVersion()};
}

}  // namespace stackd
