#include "agent/helper/listener.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "agent/sys/kernel.h"

/* Whether the folder is the user's, and no other user may write to it. */
static bool is_alone_in(const char* folder, uint64_t uid) {
  struct stat status;
  return stackd_syscall6(SYS_newfstatat, AT_FDCWD, (long)folder, (long)&status, 0, 0, 0) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == uid && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Root of the host has this number too where a user namespace does not map it (/proc/sys/kernel/overflowuid). */
#define UNMAPPED_UID 65534u

static bool root_gave_it(const char* folder, uint64_t uid) {
  char above[STACKD_PATH_BYTES];
  stackd_copy_string(above, sizeof(above), folder);
  size_t length = strlen(above);
  while (length > 1 && above[length - 1] == '/') above[--length] = '\0';
  char* slash = strrchr(above, '/');
  /* A relative path leads from wherever the program is. */
  if (folder[0] != '/' || slash == NULL) return false;
  slash[slash == above ? 1 : 0] = '\0';
  return is_alone_in(folder, uid) && (is_alone_in(above, 0) || is_alone_in(above, UNMAPPED_UID));
}

int stackd_listener_check(int socket_fd, const struct stackd_settings* settings) {
  if (settings->daemon_uid == STACKD_ANY_DAEMON) return 0;
  struct ucred listener;
  socklen_t size_bytes = sizeof(listener);
  long error = stackd_syscall6(SYS_getsockopt, socket_fd, SOL_SOCKET, SO_PEERCRED, (long)&listener, (long)&size_bytes, 0);
  if (error != 0) return (int)error;
  uint64_t uid = listener.uid;
  if (settings->daemon_uid != STACKD_USUAL_DAEMON) return uid == (uint64_t)settings->daemon_uid ? 0 : -EPERM;
  bool is_trusted =
      uid == 0 || uid == (uint64_t)stackd_syscall6(SYS_geteuid, 0, 0, 0, 0, 0, 0) || root_gave_it(settings->dir, uid);
  return is_trusted ? 0 : -EPERM;
}
