#include "agent/helper/bell.h"

#include "agent/signals/wake_signal.h"
#include "agent/sys/kernel.h"

#ifndef F_SETSIG
#define F_SETSIG 10
#endif
#ifndef F_SETOWN_EX
#define F_SETOWN_EX 15
#define F_OWNER_PID 1
struct f_owner_ex {
  int type;
  pid_t pid;
};
#endif

int stackd_bell_make(struct stackd_own_fd* ours) {
  stackd_own_fd_close(ours);
  int ends[2];
  /* Datagrams: with a connection the daemon's end would be a signal too, in a program that was not asked for a dump. */
  int error = (int)stackd_syscall6(SYS_socketpair, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, (long)ends, 0, 0);
  if (error != 0) return error;
  *ours = stackd_own_fd_take(ends[0], STACKD_FD_SOCKET);
  struct f_owner_ex owner = {F_OWNER_PID, stackd_getpid()};
  /* A signal of the old kind: the kernel drops it if it is pending already. One that is queued becomes SIGIO where the
   * queue is full, which ends a program. */
  if (stackd_fcntl(ours->fd, F_SETOWN_EX, (long)&owner) == 0 &&
      stackd_fcntl(ours->fd, F_SETSIG, stackd_wake_signal()) == 0 &&
      stackd_fcntl(ours->fd, F_SETFL, O_RDWR | O_ASYNC | O_NONBLOCK) == 0) {
    return ends[1];
  }
  stackd_own_fd_close(ours);
  stackd_close(ends[1]);
  return -EINVAL;
}

void stackd_bell_set_signal(const struct stackd_own_fd* ours) {
  int fd = stackd_own_fd_get(ours);
  if (fd >= 0) stackd_fcntl(fd, F_SETSIG, stackd_wake_signal());
}
