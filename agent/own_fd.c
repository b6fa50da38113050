#include "agent/own_fd.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOWEST_FD 200

struct stackd_own_fd stackd_own_fd_take(int fd) {
  if (fd < 0) return STACKD_NO_FD;
  int moved = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST_FD);
  if (moved >= 0) {
    close(fd);
    fd = moved;
  } /* else RLIMIT_NOFILE is below that: it stays where it is */
  struct stat status;
  if (fstat(fd, &status) != 0) {
    close(fd);
    return STACKD_NO_FD;
  }
  return (struct stackd_own_fd){fd, status.st_dev, status.st_ino};
}

int stackd_own_fd_get(const struct stackd_own_fd* own) {
  struct stat status;
  if (own->fd < 0 || fstat(own->fd, &status) != 0) return -1;
  return status.st_dev == own->device && status.st_ino == own->inode ? own->fd : -1;
}

void stackd_own_fd_close(struct stackd_own_fd* own) {
  int fd = stackd_own_fd_get(own);
  if (fd >= 0) close(fd);
  *own = STACKD_NO_FD;
}
