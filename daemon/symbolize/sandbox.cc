#include "daemon/symbolize/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <iterator>
#include <vector>

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
// for.
constexpr uint32_t kAllowed[] = {
    SYS_read,         SYS_pread64,     SYS_readv,       SYS_write,           SYS_writev,       SYS_lseek,
    SYS_close,        SYS_fstat,       SYS_newfstatat,  SYS_fcntl,           SYS_dup,          SYS_mmap,
    SYS_munmap,       SYS_mremap,      SYS_mprotect,    SYS_madvise,         SYS_brk,          SYS_recvmsg,
    SYS_sendmsg,      SYS_sendto,      SYS_futex,       SYS_clock_gettime,   SYS_getrandom,    SYS_exit,
    SYS_exit_group,   SYS_gettid,      SYS_getpid,      SYS_tgkill,          SYS_rt_sigaction, SYS_rt_sigprocmask,
    SYS_rt_sigreturn, SYS_sigaltstack, SYS_sched_yield, SYS_restart_syscall, SYS_readlink,
};

constexpr uint32_t Offset(size_t offset) { return static_cast<uint32_t>(offset); }

}  // namespace

void LimitResources(uint64_t memory_limit_bytes) {
  Limit(RLIMIT_CORE, 0);
  Limit(RLIMIT_NOFILE, 512);
  // Not RLIMIT_AS: debug files of gigabytes are mapped, and cost only page cache.
  Limit(RLIMIT_DATA, memory_limit_bytes);
}

void ForbidSystemCalls() {
  std::vector<sock_filter> filter;
  auto load = [&](size_t offset) { filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, Offset(offset))); };
  auto answer = [&](uint32_t action) { filter.push_back(BPF_STMT(BPF_RET | BPF_K, action)); };
  auto skip_one_unless = [&](uint32_t value) { filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1)); };
  auto skip_one_if = [&](uint32_t value) { filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0)); };
  constexpr uint32_t kDeny = SECCOMP_RET_ERRNO | EPERM;

  load(offsetof(seccomp_data, arch));
  skip_one_if(AUDIT_ARCH_X86_64);
  answer(kDeny);
  load(offsetof(seccomp_data, nr));
  for (uint32_t number : kAllowed) {
    skip_one_unless(number);
    answer(SECCOMP_RET_ALLOW);
  }
  skip_one_if(SYS_openat);
  answer(kDeny);
  load(offsetof(seccomp_data, args[0]));  // the lower half of the folder's fd
  skip_one_unless(static_cast<uint32_t>(AT_FDCWD));
  answer(kDeny);
  answer(SECCOMP_RET_ALLOW);

  sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return;
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

}  // namespace stackd
