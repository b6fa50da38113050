#include "agent/dump/quiet_read.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>

#include "agent/sys/kernel.h"
#include "agent/sys/private_fd.h"
#include "agent/sys/target.h"

int stackd_quiet_begin(struct stackd_quiet_look* look, int task_fd, uint32_t tid) {
  look->task_fd = task_fd;
  look->tid = tid;
  look->cpu_ns = 0;
  /* In this order. A thread that was seen asleep is given a processor again before it writes to its stack. */
  look->schedstat_fd = stackd_task_open_schedstat(task_fd, tid);
  struct stackd_task_schedstat stats;
  if (look->schedstat_fd >= 0 && stackd_task_read_schedstat(look->schedstat_fd, &stats) != 0) stackd_quiet_end(look);
  if (look->schedstat_fd >= 0) {
    look->run_count = stats.run_count;
    look->cpu_ns = stats.cpu_ns;
  }
  int error = stackd_task_read_sleep(task_fd, tid, &look->sleep);
  if (error != 0) stackd_quiet_end(look);
  return error;
}

bool stackd_quiet_is_whole(const struct stackd_quiet_look* look) {
  if (look->schedstat_fd < 0) {
    struct stackd_task_sleep now;
    return stackd_task_read_sleep(look->task_fd, look->tid, &now) == 0 && now.rsp == look->sleep.rsp &&
           now.rip == look->sleep.rip;
  }
  struct stackd_task_schedstat now;
  return stackd_task_read_schedstat(look->schedstat_fd, &now) == 0 && now.run_count == look->run_count;
}

void stackd_quiet_end(struct stackd_quiet_look* look) {
  if (look->schedstat_fd >= 0) stackd_own_fd_drop(look->schedstat_fd);
  look->schedstat_fd = -1;
}

bool stackd_call_is_restarted(const struct stackd_syscall* call) {
  switch (call->number) {
    case SYS_wait4:
    case SYS_waitid:
      return true;
    case SYS_futex: {
      uint32_t operation = (uint32_t)call->arguments[1] & (uint32_t)FUTEX_CMD_MASK;
      bool has_timeout = call->arguments[3] != 0;
      return (operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET) && !has_timeout;
    }
    default:
      return false;
  }
}

bool stackd_call_may_be_uninterruptible(const struct stackd_syscall* call) {
  switch (call->number) {
    case SYS_futex:
    case SYS_poll:
    case SYS_ppoll:
    case SYS_select:
    case SYS_pselect6:
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_pause:
    case SYS_rt_sigsuspend:
    case SYS_rt_sigtimedwait:
    case SYS_wait4:
    case SYS_waitid:
    case SYS_accept:
    case SYS_accept4:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_restart_syscall:
      return false;
    default:
      return true;
  }
}

/* glibc's descriptor begins with two pointers to itself, one word apart. In it lies the head of the list of robust mutexes,
 * whose address the kernel tells. At which offset depends on glibc's version. */
#define MAX_HEAD_OFFSET 4096u
static uint64_t head_offset; /* 0: not known yet */

static uint64_t robust_list_head(uint32_t tid) {
  uint64_t head = 0;
  size_t size_bytes = 0;
  long error = stackd_syscall6(SYS_get_robust_list, (long)tid, (long)&head, (long)&size_bytes, 0, 0, 0);
  return error == 0 ? head : 0;
}

static bool is_descriptor(const uint64_t words[3], uint64_t address) { return words[0] == address && words[2] == address; }

/* 0 if there is none. */
static uint64_t find_head_offset(uint64_t head) {
  uint64_t words[MAX_HEAD_OFFSET / 8];
  /* Backwards in pages: the lowest may not be there. */
  for (uint64_t size_bytes = sizeof(words); size_bytes >= 512; size_bytes /= 2) {
    if (stackd_read_memory(stackd_target_pid(), head - size_bytes, words, size_bytes) != (long)size_bytes) continue;
    for (uint64_t offset = 24; offset <= size_bytes; offset += 8) {
      if (is_descriptor(words + (size_bytes - offset) / 8, head - offset)) return offset;
    }
    return 0;
  }
  return 0;
}

uint64_t stackd_quiet_thread_self(uint32_t tid) {
  uint64_t head = robust_list_head(tid);
  if (head == 0 || head % 8 != 0) return 0;
  if (head_offset == 0) head_offset = find_head_offset(head);
  if (head_offset == 0) return 0;
  uint64_t words[3];
  uint64_t self = head - head_offset;
  bool is_read = stackd_read_memory(stackd_target_pid(), self, words, sizeof(words)) == sizeof(words);
  return is_read && is_descriptor(words, self) ? self : 0;
}
