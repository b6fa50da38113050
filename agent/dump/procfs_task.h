/* The threads of this process, as procfs shows them. Helper thread only: NOT SIGNAL-SAFE (opens files). */
#ifndef STACKD_PROCFS_TASK_H_
#define STACKD_PROCFS_TASK_H_

#include <stdbool.h>
#include <stdint.h>

#include "stackd/ring_abi.h"

struct stackd_task_status {
  char state; /* 'R', 'S', 'D', 'T', 't', 'Z', ... */
  uint64_t signals_pending;
  uint64_t signals_blocked; /* bit n - 1 is signal n */
};

/* Where a thread sleeps, from /proc/self/task/TID/syscall. */
struct stackd_task_sleep {
  uint64_t rsp;
  uint64_t rip;
  struct stackd_syscall call; /* all zero where it sleeps in none (a page fault) */
};

/* An fd of /proc/self/task, or a negative errno. The caller drops it (private_fd.h). */
int stackd_task_open(void);

/* Calls `visit` with each number that is a name in a folder of procfs (tids in task, fds in fd), until it returns false.
 * The order is the kernel's. Not re-entrant. 0 or a negative errno. */
int stackd_proc_list(int folder_fd, bool (*visit)(void* context, uint32_t number), void* context);

/* A number that differs if the number of threads does. */
uint64_t stackd_task_count(int task_fd);

bool stackd_task_exists(int task_fd, uint32_t tid);

/* 0; -ENOENT or -ESRCH if the thread is gone. */
int stackd_task_read_status(int task_fd, uint32_t tid, struct stackd_task_status* out);

/* 0; -EAGAIN if it is running. */
int stackd_task_read_sleep(int task_fd, uint32_t tid, struct stackd_task_sleep* out);

/* An fd for stackd_task_read_schedstat(), or a negative errno. The caller drops it (private_fd.h). */
int stackd_task_open_schedstat(int task_fd, uint32_t tid);

struct stackd_task_schedstat {
  uint64_t cpu_ns;
  uint64_t runnable_ns; /* that it waited for a processor */
  uint64_t run_count;   /* how often it was given one */
};

/* As of now, however often it is read. 0 or a negative errno: -ENOENT also where the kernel was built without
 * CONFIG_SCHED_INFO. */
int stackd_task_read_schedstat(int schedstat_fd, struct stackd_task_schedstat* out);

/* The thread's name and its wait channel, "" where they cannot be read. */
void stackd_task_read_name(int task_fd, uint32_t tid, char name[16]);
void stackd_task_read_wait_channel(int task_fd, uint32_t tid, char channel[32]);

#endif /* STACKD_PROCFS_TASK_H_ */
