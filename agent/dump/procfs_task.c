#include "agent/dump/procfs_task.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/capture/interrupted_syscall.h"
#include "agent/capture/syscall_arguments.h"
#include "agent/sys/private_fd.h"

int stackd_task_open(void) {
  int fd = stackd_own_fd_hold(open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return fd < 0 ? -errno : fd;
}

struct linux_dirent64 {
  uint64_t d_ino;
  int64_t d_off;
  uint16_t d_reclen;
  uint8_t d_type;
  char d_name[];
};

int stackd_proc_list(int folder_fd, bool (*visit)(void* context, uint32_t number), void* context) {
  /* Not readdir(): that allocates, in a process whose allocator may be what hangs. */
  static char buffer[32 << 10] __attribute__((aligned(8)));
  if (lseek(folder_fd, 0, SEEK_SET) < 0) return -errno;
  for (;;) {
    long got = syscall(SYS_getdents64, folder_fd, buffer, sizeof(buffer));
    if (got < 0) return -errno;
    if (got == 0) return 0;
    for (long at = 0; at < got;) {
      const struct linux_dirent64* entry = (const void*)(buffer + at);
      at += entry->d_reclen;
      if (entry->d_name[0] == '.') continue;
      uint32_t number = (uint32_t)strtoul(entry->d_name, NULL, 10);
      if (!visit(context, number)) return 0;
    }
  }
}

uint64_t stackd_task_count(int task_fd) {
  struct stat status;
  return stackd_fstat(task_fd, &status) == 0 ? status.st_nlink : 0;
}

bool stackd_task_exists(int task_fd, uint32_t tid) {
  char path[16];
  snprintf(path, sizeof(path), "%u", tid);
  struct stat status;
  return fstatat(task_fd, path, &status, 0) == 0;
}

/* Reads task/TID/FILE into `text`, NUL-terminated; its length or a negative errno. */
static int read_file(int task_fd, uint32_t tid, const char* file, char* text, size_t size_bytes) {
  char path[32];
  snprintf(path, sizeof(path), "%u/%s", tid, file);
  int fd = stackd_own_fd_hold(openat(task_fd, path, O_RDONLY | O_CLOEXEC));
  if (fd < 0) return -errno;
  ssize_t got = read(fd, text, size_bytes - 1);
  int error = got < 0 ? -errno : 0;
  stackd_own_fd_drop(fd);
  if (error != 0) return error;
  text[got] = '\0';
  return (int)got;
}

static const char* find_field(const char* text, const char* field) {
  const char* found = strstr(text, field);
  return found == NULL ? NULL : found + strlen(field);
}

int stackd_task_read_status(int task_fd, uint32_t tid, struct stackd_task_status* out) {
  char text[4096];
  int length = read_file(task_fd, tid, "status", text, sizeof(text));
  if (length < 0) return length;
  /* A thread's name comes first and may hold anything but a newline. */
  const char* state = find_field(text, "\nState:\t");
  const char* pending = find_field(text, "\nSigPnd:\t");
  const char* blocked = find_field(text, "\nSigBlk:\t");
  if (state == NULL || pending == NULL || blocked == NULL) return -ESRCH;
  out->state = *state;
  out->signals_pending = strtoull(pending, NULL, 16);
  out->signals_blocked = strtoull(blocked, NULL, 16);
  return 0;
}

/* Of a call that the kernel went on with after a stop, the number is in the code or on the stack only. They are another
 * thread's, which may be unmapping them by now: the kernel reads them. */
static uint32_t number_of(uint32_t number, uint64_t rip, uint64_t rsp) {
  if (number != SYS_restart_syscall) return number;
  uint8_t code[STACKD_CALL_CODE_BYTES];
  if (stackd_read_memory(getpid(), rip - sizeof(code), code, sizeof(code)) != sizeof(code)) return number;
  int first = stackd_syscall_number_in(code);
  if (first < 0) first = stackd_syscall_number_on_stack(getpid(), false, rip, rsp, 0);
  return first >= 0 ? (uint32_t)first : number;
}

int stackd_task_read_sleep(int task_fd, uint32_t tid, struct stackd_task_sleep* out) {
  char text[256];
  int length = read_file(task_fd, tid, "syscall", text, sizeof(text));
  if (length < 0) return length;
  /* Number, six arguments, rsp and rip; "-1 rsp rip" outside of a system call; "running". */
  char* at;
  long number = strtol(text, &at, 10);
  if (at == text) return -EAGAIN;
  uint64_t values[STACKD_SYSCALL_ARGUMENTS + 2] = {0};
  int count = number >= 0 ? STACKD_SYSCALL_ARGUMENTS : 0;
  for (int i = 0; i < count + 2; i++) {
    char* end;
    values[i] = strtoull(at, &end, 16);
    if (end == at) return -EAGAIN;
    at = end;
  }
  out->rsp = values[count];
  out->rip = values[count + 1];
  memset(&out->call, 0, sizeof(out->call));
  if (number >= 0) stackd_syscall_keep(number_of((uint32_t)number, out->rip, out->rsp), values, &out->call);
  return 0;
}

static void read_line(int task_fd, uint32_t tid, const char* file, char* out, size_t size_bytes) {
  if (read_file(task_fd, tid, file, out, size_bytes) < 0) out[0] = '\0';
  out[strcspn(out, "\n")] = '\0';
}

void stackd_task_read_name(int task_fd, uint32_t tid, char name[16]) { read_line(task_fd, tid, "comm", name, 16); }

void stackd_task_read_wait_channel(int task_fd, uint32_t tid, char channel[32]) {
  read_line(task_fd, tid, "wchan", channel, 32);
  if (strcmp(channel, "0") == 0) channel[0] = '\0';
}
