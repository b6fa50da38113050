#include "agent/sys/private_fd.h"

#include <sys/stat.h>
#include <sys/vfs.h>

#include "agent/sys/kernel.h"
#include "agent/sys/process_id.h"

#define LOWEST_FD 200

/* Declared in linux/magic.h, which musl's compiler does not find. */
#define PROC_FILE_SYSTEM 0x9fa0

/* The agent's fds that were taken and not closed. */
#define MAX_GUARDED 12
static struct stackd_own_fd guarded[MAX_GUARDED] = {[0 ... MAX_GUARDED - 1] = {-1, 0, 0}};

static void guard(const struct stackd_own_fd* own) {
  for (int i = 0; i < MAX_GUARDED; i++) {
    if (__atomic_load_n(&guarded[i].fd, __ATOMIC_RELAXED) >= 0) continue;
    guarded[i].device = own->device;
    guarded[i].inode = own->inode;
    __atomic_store_n(&guarded[i].fd, own->fd, __ATOMIC_RELEASE);
    return;
  }
}

static void unguard(int fd) {
  for (int i = 0; i < MAX_GUARDED; i++) {
    if (__atomic_load_n(&guarded[i].fd, __ATOMIC_RELAXED) == fd) __atomic_store_n(&guarded[i].fd, -1, __ATOMIC_RELAXED);
  }
}

static bool is_of_kind(int fd, enum stackd_fd_kind kind, const struct stat* status) {
  if (kind == STACKD_FD_PROC) {
    struct statfs system;
    return stackd_syscall6(SYS_fstatfs, fd, (long)&system, 0, 0, 0, 0) == 0 && system.f_type == PROC_FILE_SYSTEM;
  }
  return kind == STACKD_FD_SOCKET ? S_ISSOCK(status->st_mode) : S_ISREG(status->st_mode);
}

/* By number alone: inode 0. `status` is that of the file, where its kind is not PROC. */
static bool hold(int fd, enum stackd_fd_kind kind, struct stat* status) {
  struct stackd_own_fd held = {fd, 0, 0};
  guard(&held);
  if ((kind == STACKD_FD_PROC || stackd_fstat(fd, status) == 0) && is_of_kind(fd, kind, status)) return true;
  unguard(fd);
  return false;
}

int stackd_own_fd_hold(int fd, enum stackd_fd_kind kind) {
  struct stat status;
  if (fd < 0) return fd;
  return hold(fd, kind, &status) ? fd : -EBADF;
}

void stackd_own_fd_drop(int fd) {
  unguard(fd);
  stackd_close(fd);
}

void stackd_own_fd_reset_after_fork(void) {
  for (int i = 0; i < MAX_GUARDED; i++) {
    if (guarded[i].fd >= 0 && guarded[i].inode == 0) stackd_own_fd_drop(guarded[i].fd);
  }
}

/* A vfork child shares our memory, but not our fds. */
static bool still_ours(const struct stackd_own_fd* own) {
  return own->inode == 0 ? !stackd_is_other_process() : stackd_own_fd_get(own) == own->fd;
}

bool stackd_own_fd_guards(int fd) {
  for (int i = 0; i < MAX_GUARDED && fd >= 0; i++) {
    if (__atomic_load_n(&guarded[i].fd, __ATOMIC_ACQUIRE) == fd) return still_ours(&guarded[i]);
  }
  return false;
}

int stackd_own_fd_next_guarded(unsigned first, unsigned last) {
  int next = -1;
  for (int i = 0; i < MAX_GUARDED; i++) {
    int fd = __atomic_load_n(&guarded[i].fd, __ATOMIC_ACQUIRE);
    if (fd < 0 || (unsigned)fd < first || (unsigned)fd > last || (next >= 0 && fd > next)) continue;
    if (still_ours(&guarded[i])) next = fd;
  }
  return next;
}

struct stackd_own_fd stackd_own_fd_take(int fd, enum stackd_fd_kind kind) {
  struct stat status;
  if (fd < 0 || !hold(fd, kind, &status)) return STACKD_NO_FD;
  if (kind == STACKD_FD_PROC && stackd_fstat(fd, &status) != 0) {
    unguard(fd);
    return STACKD_NO_FD;
  }
  int moved = stackd_fcntl(fd, F_DUPFD_CLOEXEC, LOWEST_FD);
  if (moved >= 0) {
    stackd_own_fd_drop(fd);
    fd = moved;
  } else { /* RLIMIT_NOFILE is below that: it stays where it is */
    unguard(fd);
  }
  struct stackd_own_fd own = {fd, status.st_dev, status.st_ino};
  /* The program may be closing everything just now, and opening files of its own at these numbers. */
  if (stackd_own_fd_get(&own) < 0) return STACKD_NO_FD;
  guard(&own);
  return own;
}

void stackd_own_fd_close(struct stackd_own_fd* own) {
  int fd = stackd_own_fd_get(own);
  unguard(own->fd);
  if (fd >= 0) stackd_close(fd);
  *own = STACKD_NO_FD;
}
