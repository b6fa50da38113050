/* The kernel's calls as the agent's own thread makes them: by no function of the C library, which does not know that
 * thread (helper/clone.h). Such a function could use a lock, a buffer or an errno of another thread.
 *
 * Everything here is SIGNAL-SAFE. Results are the kernel's: a negative errno value on failure.
 */
#ifndef STACKD_KERNEL_H_
#define STACKD_KERNEL_H_

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "agent/sys/syscalls.h"

STACKD_HANDLER_INLINE int stackd_openat(int folder, const char* path, int flags) {
  return (int)stackd_syscall6(SYS_openat, folder, (long)path, flags, 0, 0, 0);
}

STACKD_HANDLER_INLINE int stackd_open(const char* path, int flags) { return stackd_openat(AT_FDCWD, path, flags); }

STACKD_HANDLER_INLINE int stackd_close(int fd) { return (int)stackd_syscall6(SYS_close, fd, 0, 0, 0, 0, 0); }

STACKD_HANDLER_INLINE ssize_t stackd_read(int fd, void* out, size_t size_bytes) {
  return stackd_syscall6(SYS_read, fd, (long)out, (long)size_bytes, 0, 0, 0);
}

STACKD_HANDLER_INLINE ssize_t stackd_pread(int fd, void* out, size_t size_bytes, off_t offset) {
  return stackd_syscall6(SYS_pread64, fd, (long)out, (long)size_bytes, offset, 0, 0);
}

STACKD_HANDLER_INLINE ssize_t stackd_readlink(const char* path, char* out, size_t size_bytes) {
  return stackd_syscall6(SYS_readlink, (long)path, (long)out, (long)size_bytes, 0, 0, 0);
}

STACKD_HANDLER_INLINE int stackd_fcntl(int fd, int command, long argument) {
  return (int)stackd_syscall6(SYS_fcntl, fd, command, argument, 0, 0, 0);
}

/* NULL where there is no memory. */
STACKD_HANDLER_INLINE void* stackd_map(void* at, size_t size_bytes, int flags, int fd) {
  long address = stackd_syscall6(SYS_mmap, (long)at, (long)size_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  return address < 0 && address > -4096 ? NULL : (void*)address;
}

STACKD_HANDLER_INLINE void* stackd_map_private(size_t size_bytes) {
  return stackd_map(NULL, size_bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

STACKD_HANDLER_INLINE int stackd_unmap(void* at, size_t size_bytes) {
  return (int)stackd_syscall6(SYS_munmap, (long)at, (long)size_bytes, 0, 0, 0, 0);
}

STACKD_HANDLER_INLINE int stackd_advise(void* at, size_t size_bytes, int advice) {
  return (int)stackd_syscall6(SYS_madvise, (long)at, (long)size_bytes, advice, 0, 0, 0);
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Has the kernel put memory there now, since there may be none later. In one call where the kernel is 5.14 or later: page
 * faults are a good part of the start of a small program. */
STACKD_HANDLER_INLINE void stackd_touch(void* at, size_t size_bytes) {
  if (stackd_advise(at, size_bytes, MADV_POPULATE_WRITE) == 0) return;
  for (size_t i = 0; i < size_bytes; i += 4096) *((volatile char*)at + i) = *((volatile char*)at + i);
}

/* NULL where it fails. */
STACKD_HANDLER_INLINE void* stackd_remap(void* at, size_t old_bytes, size_t new_bytes, int flags, void* to) {
  long address = stackd_syscall6(SYS_mremap, (long)at, (long)old_bytes, (long)new_bytes, flags, (long)to, 0);
  return address < 0 && address > -4096 ? NULL : (void*)address;
}

STACKD_HANDLER_INLINE struct timespec stackd_timespec(uint64_t ns) {
  return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

STACKD_HANDLER_INLINE void stackd_pause_ns(uint64_t duration_ns) {
  struct timespec duration = stackd_timespec(duration_ns);
  stackd_syscall6(SYS_nanosleep, (long)&duration, 0, 0, 0, 0, 0);
}

/* `timeout` NULL: for ever. */
STACKD_HANDLER_INLINE int stackd_ppoll(struct pollfd* fds, unsigned count, const struct timespec* timeout) {
  /* The kernel writes what is left into a copy. */
  struct timespec left = timeout != NULL ? *timeout : (struct timespec){0, 0};
  return (int)stackd_syscall6(SYS_ppoll, (long)fds, count, timeout != NULL ? (long)&left : 0, 0, 0, 0);
}

STACKD_HANDLER_INLINE uint64_t stackd_set_signal_mask(uint64_t mask) {
  uint64_t before = 0;
  stackd_syscall6(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, (long)&before, sizeof(mask), 0, 0);
  return before;
}

#endif /* STACKD_KERNEL_H_ */
