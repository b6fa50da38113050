#include "daemon/symbolize/sandbox.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/confine/kernel_support.h"
#include "daemon/confine/landlock.h"
#include "daemon/confine/seccomp_filter.h"

namespace stackd {
namespace {

void Limit(__rlimit_resource resource, uint64_t value) {
  rlimit limit;
  if (getrlimit(resource, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max < value ? limit.rlim_max : value;
  limit.rlim_max = limit.rlim_cur;
  setrlimit(resource, &limit);
}

// Memory, reading, the socket, the end of the process; the last rows are what libc needs for abort and what sanitizers ask
// for. Not newfstatat: it tells of any path, and cannot be limited to what is open.
constexpr uint32_t kAllowed[] = {
    SYS_read,
    SYS_pread64,
    SYS_readv,
    SYS_write,
    SYS_writev,
    SYS_lseek,
    SYS_close,
    SYS_fstat,
    SYS_dup,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    SYS_recvmsg,
    SYS_sendmsg,
    SYS_sendto,
    SYS_futex,
    SYS_clock_gettime,
    SYS_getrandom,
    SYS_exit,
    SYS_exit_group,
    SYS_gettid,
    SYS_getpid,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_sched_yield,
    SYS_restart_syscall,
};

SeccompFilter WorkerFilter() {
  SeccompFilter filter(FilterAnswer::kRefuse);
  filter.Add(kAllowed, FilterAnswer::kAllow);
  // F_SETOWN and F_SETSIG would have the kernel send any signal to any process of the user.
  filter.AllowOnlyWith(SYS_fcntl, 1, {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL});
  filter.AllowOnlyWith(SYS_tgkill, 0, {static_cast<uint32_t>(getpid())});
  filter.AllowOnlyWithout(SYS_mmap, 2, PROT_EXEC);
  filter.AllowOnlyWithout(SYS_mprotect, 2, PROT_EXEC);
  return filter;
}

}  // namespace

void LimitResources(uint64_t memory_limit_bytes) {
  Limit(RLIMIT_CORE, 0);
  Limit(RLIMIT_NOFILE, 512);
  // Not RLIMIT_AS: debug files of gigabytes are mapped, and cost only page cache.
  Limit(RLIMIT_DATA, memory_limit_bytes);
}

bool ForbidAllButOpenFiles() {
  const KernelSupport support = AskKernelSupport();
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  // First, since the filter refuses it.
  if (support.landlock_version > 0 && !RestrictByLandlock({})) return false;
  return !support.has_seccomp || WorkerFilter().Install();
}

}  // namespace stackd
