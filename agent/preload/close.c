/* close() and its relatives: programs that close every fd at their start (daemons do) would close ours. The agent survives
 * that, but the daemon would lose the connection at the next dump, and that dump with it. So ours stay open: for the
 * program they were never there, and it gets the error that says so. An fd that it puts over ours (dup2) is its own.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/preload/preload.h"
#include "agent/sys/private_fd.h"

typedef int close_fn(int);
typedef int close_range_fn(unsigned, unsigned, int);

static close_fn* real_close;
static close_range_fn* real_close_range;

void stackd_preload_find_close(void) {
  STACKD_BEHIND(real_close, "close");
  STACKD_BEHIND(real_close_range, "close_range");
}

STACKD_EXPORT int close(int fd) {
  stackd_preload_occasion();
  if (stackd_own_fd_guards(fd)) {
    errno = EBADF;
    return -1;
  }
  return STACKD_BEHIND(real_close, "close")(fd);
}

/* Older C libraries have none, and a program that looks for it at run time finds ours. */
static int close_all(unsigned first, unsigned last, int flags) {
  if (STACKD_BEHIND(real_close_range, "close_range") == NULL) return (int)syscall(SYS_close_range, first, last, flags);
  return real_close_range(first, last, flags);
}

STACKD_EXPORT int close_range(unsigned first, unsigned last, int flags) {
  for (;;) {
    int ours = stackd_own_fd_next_guarded(first, last);
    if (ours < 0) return close_all(first, last, flags);
    if ((unsigned)ours > first) {
      int error = close_all(first, (unsigned)ours - 1, flags);
      if (error != 0) return error;
    }
    if ((unsigned)ours == last) return 0;
    first = (unsigned)ours + 1;
  }
}

STACKD_EXPORT void closefrom(int lowest) {
  if (lowest < 0) lowest = 0;
  if (close_range((unsigned)lowest, UINT_MAX, 0) == 0) return;
  /* A kernel before 5.9. */
  long limit = sysconf(_SC_OPEN_MAX);
  for (int fd = lowest; fd < limit; fd++) close(fd);
}
