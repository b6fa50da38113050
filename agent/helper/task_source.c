#include "agent/helper/task_source.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/sys/private_fd.h"
#include "agent/sys/syscalls.h"
#include "stackd/wire.h"

#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_SEAL_SEAL 1
#define F_SEAL_SHRINK 2
#define F_SEAL_GROW 4
#define F_SEAL_WRITE 8
#endif

static int write_all(int fd, const char* bytes, size_t size_bytes) {
  while (size_bytes > 0) {
    ssize_t written = write(fd, bytes, size_bytes);
    if (written < 0 && errno != EINTR) return -errno;
    if (written < 0) continue;
    bytes += written;
    size_bytes -= (size_t)written;
  }
  return 0;
}

/* `receiver` is the int that stackd_task_table() returns. */
static void take_table(void* receiver, const void* bytes, unsigned long size_bytes) {
  int* result = receiver;
  if (*result != -ENODATA) return;
  if (size_bytes > STACKD_MAX_TASK_TABLE_BYTES) {
    *result = -E2BIG;
    return;
  }
  /* Not by its function, which C libraries have had for some years only. */
  *result = (int)stackd_syscall6(SYS_memfd_create, (long)"stackd-tasks", MFD_CLOEXEC | MFD_ALLOW_SEALING, 0, 0, 0, 0);
  if (*result < 0) return;
  stackd_own_fd_hold(*result);
  int error = write_all(*result, bytes, size_bytes);
  if (error == 0 && fcntl(*result, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0)
    error = -errno;
  if (error == 0) return;
  stackd_own_fd_drop(*result);
  *result = error;
}

int stackd_task_table(stackd_task_source_fn* source, unsigned limit_ms) {
  int result = -ENODATA;
  if (source != NULL) source(limit_ms, take_table, &result);
  return result;
}
