#include "agent/dump/procfs_task.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/capture/interrupted_syscall.h"
#include "agent/capture/syscall_arguments.h"
#include "agent/sys/kernel.h"
#include "agent/sys/large.h"
#include "agent/sys/private_fd.h"
#include "agent/sys/target.h"
#include "agent/sys/text.h"

int stackd_task_open(void) {
  return stackd_own_fd_hold(stackd_open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC), STACKD_FD_PROC);
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
  static STACKD_LARGE char buffer[32 << 10] __attribute__((aligned(8)));
  long error = stackd_syscall6(SYS_lseek, folder_fd, 0, SEEK_SET, 0, 0, 0);
  if (error < 0) return (int)error;
  for (;;) {
    long got = stackd_syscall6(SYS_getdents64, folder_fd, (long)buffer, sizeof(buffer), 0, 0, 0);
    if (got <= 0) return (int)got;
    for (long at = 0; at < got;) {
      const struct linux_dirent64* entry = (const void*)(buffer + at);
      at += entry->d_reclen;
      if (entry->d_name[0] == '.') continue;
      const char* name = entry->d_name;
      uint32_t number = (uint32_t)stackd_take_number(&name, 10);
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
  struct stackd_text text = stackd_text_in(path, sizeof(path));
  stackd_put_number(&text, tid, 10);
  struct stat status;
  return stackd_syscall6(SYS_newfstatat, task_fd, (long)path, (long)&status, 0, 0, 0) == 0;
}

/* An fd of task/TID/FILE, or a negative errno. */
static int open_file(int task_fd, uint32_t tid, const char* file) {
  char path[32];
  struct stackd_text name = stackd_text_in(path, sizeof(path));
  stackd_put_number(&name, tid, 10);
  stackd_put(&name, "/");
  stackd_put(&name, file);
  return stackd_own_fd_hold(stackd_openat(task_fd, path, O_RDONLY | O_CLOEXEC), STACKD_FD_PROC);
}

/* Reads task/TID/FILE into `text`, NUL-terminated; its length or a negative errno. */
static int read_file(int task_fd, uint32_t tid, const char* file, char* text, size_t size_bytes) {
  int fd = open_file(task_fd, tid, file);
  if (fd < 0) return fd;
  ssize_t got = stackd_read(fd, text, size_bytes - 1);
  stackd_own_fd_drop(fd);
  if (got < 0) return (int)got;
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
  out->signals_pending = stackd_take_number(&pending, 16);
  out->signals_blocked = stackd_take_number(&blocked, 16);
  return 0;
}

/* Finds the number of a call that the kernel went on with after a stop: it is in the code or on the stack only. They are
 * another thread's, which may be unmapping them by now, so the kernel reads them. */
static uint32_t number_of(uint32_t number, uint64_t rip, uint64_t rsp) {
  if (number != SYS_restart_syscall) return number;
  uint8_t code[STACKD_CALL_CODE_BYTES];
  if (stackd_read_memory(stackd_target_pid(), rip - sizeof(code), code, sizeof(code)) != sizeof(code)) return number;
  int first = stackd_syscall_number_in(code);
  if (first < 0) first = stackd_syscall_number_on_stack(stackd_target_pid(), false, rip, rsp, 0);
  return first >= 0 ? (uint32_t)first : number;
}

int stackd_task_read_sleep(int task_fd, uint32_t tid, struct stackd_task_sleep* out) {
  char text[256];
  int length = read_file(task_fd, tid, "syscall", text, sizeof(text));
  if (length < 0) return length;
  /* Number, six arguments, rsp and rip; "-1 rsp rip" outside of a system call; "running". */
  const char* at = text;
  bool in_call = strncmp(text, "-1 ", 3) != 0;
  uint64_t number = in_call ? stackd_take_number(&at, 10) : 0;
  if (!in_call) at += 2;
  if (at == text) return -EAGAIN;
  uint64_t values[STACKD_SYSCALL_ARGUMENTS + 2] = {0};
  int count = in_call ? STACKD_SYSCALL_ARGUMENTS : 0;
  for (int i = 0; i < count + 2; i++) {
    const char* before = at;
    values[i] = stackd_take_number(&at, 16);
    if (at == before) return -EAGAIN;
  }
  out->rsp = values[count];
  out->rip = values[count + 1];
  memset(&out->call, 0, sizeof(out->call));
  if (in_call) stackd_syscall_keep(number_of((uint32_t)number, out->rip, out->rsp), values, &out->call);
  return 0;
}

int stackd_task_open_schedstat(int task_fd, uint32_t tid) { return open_file(task_fd, tid, "schedstat"); }

int stackd_task_read_schedstat(int schedstat_fd, struct stackd_task_schedstat* out) {
  char text[96];
  ssize_t length = stackd_pread(schedstat_fd, text, sizeof(text) - 1, 0);
  if (length < 0) return (int)length;
  text[length] = '\0';
  uint64_t values[3];
  const char* at = text;
  for (int i = 0; i < 3; i++) {
    const char* before = at;
    values[i] = stackd_take_number(&at, 10);
    if (at == before) return -ENOENT;
  }
  *out = (struct stackd_task_schedstat){values[0], values[1], values[2]};
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
