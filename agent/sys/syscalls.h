/* System calls without the C library: no errno, no cancellation point, no lazy binding.
 *
 * Everything here is SIGNAL-SAFE. Results are the kernel's: a negative errno value on failure.
 *
 * The calls that a dump handler makes, and no others (tests/safety proves it with seccomp): getpid gettid arch_prctl
 * clock_gettime prctl rt_sigprocmask process_vm_readv futex rt_sigreturn. Where process_vm_readv is refused: fstat pread64.
 * Where it has interrupted a call: rt_sigpending, and getsockopt if that was one of a socket. A crash handler makes these
 * too: fstat pread64 sendto ppoll rt_sigaction rt_tgsigqueueinfo. On a stack without room for it: sigaltstack. Where no
 * daemon takes the crash: pwrite64 openat close mkdir newfstatat fchmod rename. Only where one of these was refused: tgkill
 * unlink readlink.
 */
#ifndef STACKD_SYSCALLS_H_
#define STACKD_SYSCALLS_H_

#include <asm/prctl.h>
#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

/* Code that can run in a signal handler lies in a section of its own. So a test can check on the linked object that no call
 * leaves it. */
#define STACKD_HANDLER __attribute__((section(".text.stackd_handler")))
#define STACKD_HANDLER_INLINE static inline __attribute__((always_inline))

STACKD_HANDLER_INLINE long stackd_syscall6(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}

STACKD_HANDLER_INLINE int32_t stackd_getpid(void) { return (int32_t)stackd_syscall6(SYS_getpid, 0, 0, 0, 0, 0, 0); }

STACKD_HANDLER_INLINE int32_t stackd_gettid(void) { return (int32_t)stackd_syscall6(SYS_gettid, 0, 0, 0, 0, 0, 0); }

/* 0 if the kernel will not tell. */
STACKD_HANDLER_INLINE uint64_t stackd_fs_base(void) {
  uint64_t base = 0;
  return stackd_syscall6(SYS_arch_prctl, ARCH_GET_FS, (long)&base, 0, 0, 0, 0) == 0 ? base : 0;
}

STACKD_HANDLER_INLINE uint64_t stackd_clock_ns(clockid_t clock) {
  struct timespec now = {0, 0};
  stackd_syscall6(SYS_clock_gettime, clock, (long)&now, 0, 0, 0, 0);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

STACKD_HANDLER_INLINE void stackd_thread_name(char name[16]) {
  stackd_syscall6(SYS_prctl, PR_GET_NAME, (long)name, 0, 0, 0, 0);
}

/* Reads memory through /proc/self/mem, if that is open; returns `refusal` if not. (read_memory.c) */
long stackd_read_memory_file(uint64_t address, void* out, size_t size_bytes, long refusal);

/* From now on process_vm_readv is tried only where the file is not open: a filter of system calls may end the program for
 * it. */
void stackd_read_memory_by_file_first(void);
int stackd_reads_memory_by_file_first(void) STACKD_HANDLER;

struct stackd_own_fd;
/* NOT SIGNAL-SAFE to call while another thread may read. */
void stackd_read_memory_by(const struct stackd_own_fd* file);

/* Copies from this process's memory as if it were another's: an unmapped address is an error (or a short count), not a
 * fault. Some container runtimes refuse the call (containerd 1.7 does), even for a process's own memory: then by a file. */
STACKD_HANDLER_INLINE long stackd_read_memory(int32_t pid, uint64_t address, void* out, size_t size_bytes) {
  struct iovec local = {out, size_bytes};
  struct iovec remote = {(void*)address, size_bytes};
  if (stackd_reads_memory_by_file_first()) {
    long read = stackd_read_memory_file(address, out, size_bytes, -ENOSYS);
    if (read != -ENOSYS) return read;
  }
  long got = stackd_syscall6(SYS_process_vm_readv, pid, (long)&local, 1, (long)&remote, 1, 0);
  return got != -EPERM && got != -ENOSYS ? got : stackd_read_memory_file(address, out, size_bytes, got);
}

/* Whether the word at `address` can be read. The kernel copies the mask in before it refuses the nonsense in front of it:
 * EFAULT or EINVAL tells. No lock is taken on the way for a page that is there. process_vm_readv takes the one of the whole
 * address space, and a program whose threads map and unmap much queues for that. */
STACKD_HANDLER_INLINE int stackd_is_readable(uint64_t address) {
  return stackd_syscall6(SYS_rt_sigprocmask, ~0l, (long)address, 0, 8, 0, 0) == -EINVAL;
}

STACKD_HANDLER_INLINE long stackd_futex_wake(uint32_t* word, int flags) {
  return stackd_syscall6(SYS_futex, (long)word, FUTEX_WAKE | flags, 1, 0, 0, 0);
}

STACKD_HANDLER_INLINE long stackd_futex_wait(uint32_t* word, uint32_t value, const struct timespec* timeout, int flags) {
  return stackd_syscall6(SYS_futex, (long)word, FUTEX_WAIT | flags, (long)value, (long)timeout, 0, 0);
}

#endif /* STACKD_SYSCALLS_H_ */
