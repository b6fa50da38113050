#include "agent/maps/perf_map.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/sys/kernel.h"
#include "agent/sys/private_fd.h"
#include "agent/sys/text.h"

#define MAX_PATH_BYTES 64

static void own_path(char path[MAX_PATH_BYTES]) {
  struct stackd_text text = stackd_text_in(path, MAX_PATH_BYTES);
  stackd_put(&text, "/tmp/perf-");
  stackd_put_number(&text, (uint64_t)stackd_getpid(), 10);
  stackd_put(&text, ".map");
}

bool stackd_perf_map_is_at(const char* path) {
  char own[MAX_PATH_BYTES];
  own_path(own);
  return strcmp(path, own) == 0;
}

int stackd_perf_map_open(void) {
  char path[MAX_PATH_BYTES];
  own_path(path);
  int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW;
  int fd = stackd_own_fd_hold(stackd_open(path, flags), STACKD_FD_FILE);
  if (fd < 0) return fd;
  struct stat status;
  uint64_t own_uid = (uint64_t)stackd_syscall6(SYS_geteuid, 0, 0, 0, 0, 0, 0);
  /* Another name: another user may have linked a file of this one there. */
  if (stackd_fstat(fd, &status) == 0 && status.st_uid == own_uid && status.st_nlink == 1) return fd;
  stackd_own_fd_drop(fd);
  return -EPERM;
}
