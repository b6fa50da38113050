/* A file descriptor of the agent's in a process whose fds are not ours: the program may close any number, or open something
 * else there. Each use first checks that the number still means the file that we opened.
 *
 * Fds are moved to 200 and above, out of the way of programs that count on the lowest numbers.
 * Of the handlers only that of a crash uses any.
 */
#ifndef STACKD_PRIVATE_FD_H_
#define STACKD_PRIVATE_FD_H_

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "agent/sys/syscalls.h"

/* Works for the agent's own fds too, which fstat() hides (preload/fstat.c). 0 or a negative errno. SIGNAL-SAFE. */
STACKD_HANDLER_INLINE long stackd_fstat(int fd, struct stat* status) {
  return stackd_syscall6(SYS_fstat, fd, (long)status, 0, 0, 0, 0);
}

struct stackd_own_fd {
  int fd; /* < 0: none */
  dev_t device;
  ino_t inode;
};

#define STACKD_NO_FD ((struct stackd_own_fd){-1, 0, 0})

/* What was opened. bash closes the pipes of a pipeline twice. The second time it may close one of ours, before its number
 * is noted, and have a file of its own there. */
enum stackd_fd_kind { STACKD_FD_PROC, STACKD_FD_SOCKET, STACKD_FD_FILE };

/* Takes `fd` (a negative errno gives an empty one) and moves it out of the way, close-on-exec. */
struct stackd_own_fd stackd_own_fd_take(int fd, enum stackd_fd_kind kind);

/* For an fd that the helper needs for a moment only: keeps it from the program's close(), then closes it. Returns `fd`, or
 * -EBADF if that number means the program's file by now. */
int stackd_own_fd_hold(int fd, enum stackd_fd_kind kind);
void stackd_own_fd_drop(int fd);

/* In the child of a fork: drops what the parent's helper held just then. */
void stackd_own_fd_reset_after_fork(void);

/* Whether `fd` is one of the agent's. Any thread; cheap where it is not. */
bool stackd_own_fd_guards(int fd);

/* The lowest such fd in [first, last], or -1. */
int stackd_own_fd_next_guarded(unsigned first, unsigned last);

/* The number, or -1 if it no longer means our file. SIGNAL-SAFE. */
STACKD_HANDLER_INLINE int stackd_own_fd_get(const struct stackd_own_fd* own) {
  struct stat status;
  if (own->fd < 0 || stackd_fstat(own->fd, &status) != 0) return -1;
  return status.st_dev == own->device && status.st_ino == own->inode ? own->fd : -1;
}

/* Closes it, unless the number means a file of the program's by now. */
void stackd_own_fd_close(struct stackd_own_fd* own);

#endif /* STACKD_PRIVATE_FD_H_ */
