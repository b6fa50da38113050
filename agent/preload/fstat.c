/* fstat(): a program may look which of all numbers are open. Tests of what a child inherits do, CPython's among them. It
 * has not opened ours, and would count them as its own. It gets the error that close() gives it too.
 *
 * Programs that were compiled with a glibc before 2.33 call it by the name __fxstat. On this architecture, `struct stat` is
 * `struct stat64` and the kernel's.
 */
#include <errno.h>
#include <sys/stat.h>

#include "agent/preload/preload.h"
#include "agent/sys/private_fd.h"

typedef int fstat_fn(int, struct stat*);
typedef int fxstat_fn(int, int, struct stat*);

static fstat_fn* real_fstat;
static fxstat_fn* real_fxstat;

void stackd_preload_find_fstat(void) {
  STACKD_BEHIND(real_fstat, "fstat");
  STACKD_BEHIND(real_fxstat, "__fxstat");
}

static bool hides(int fd) {
  if (!stackd_own_fd_guards(fd)) return false;
  errno = EBADF;
  return true;
}

/* Where the C library has no such name, a program can still find ours. */
static int by_the_kernel(int fd, struct stat* status) {
  long error = stackd_fstat(fd, status);
  if (error == 0) return 0;
  errno = (int)-error;
  return -1;
}

STACKD_EXPORT int fstat(int fd, struct stat* status) {
  stackd_preload_occasion();
  if (hides(fd)) return -1;
  fstat_fn* behind = STACKD_BEHIND(real_fstat, "fstat");
  return behind != NULL ? behind(fd, status) : by_the_kernel(fd, status);
}

STACKD_EXPORT int __fxstat(int version, int fd, struct stat* status) {
  if (hides(fd)) return -1;
  fxstat_fn* behind = STACKD_BEHIND(real_fxstat, "__fxstat");
  return behind != NULL ? behind(version, fd, status) : by_the_kernel(fd, status);
}

/* <sys/stat.h> declares these with types of their own. */
#define ALIAS(function, name) \
  STACKD_EXPORT __typeof__(function) stackd_preload_##name __asm__(#name) __attribute__((alias(#function), copy(function)))
ALIAS(fstat, fstat64);
ALIAS(__fxstat, __fxstat64);
