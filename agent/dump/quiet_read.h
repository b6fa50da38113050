/* Threads that sleep in a system call are read where they sleep: no signal interrupts the call. Helper thread only: NOT
 * SIGNAL-SAFE (opens files). */
#ifndef STACKD_QUIET_READ_H_
#define STACKD_QUIET_READ_H_

#include <stdbool.h>
#include <stdint.h>

#include "agent/dump/procfs_task.h"

/* One look at a thread: what is copied of it between stackd_quiet_begin() and stackd_quiet_is_whole() is of one moment, if
 * the latter says so. */
struct stackd_quiet_look {
  int task_fd;
  uint32_t tid;
  int schedstat_fd;   /* < 0: the kernel does not tell how often a thread runs */
  uint64_t run_count; /* how often it has been given a processor */
  uint64_t cpu_ns;
  struct stackd_task_sleep sleep;
};

/* 0 if the thread sleeps: then the caller ends the look. -EAGAIN if it runs; -ENOENT or -ESRCH if it is gone. */
int stackd_quiet_begin(struct stackd_quiet_look* look, int task_fd, uint32_t tid);

/* Whether the thread has not run since stackd_quiet_begin(); without that number, whether it sleeps in the same place
 * again. */
bool stackd_quiet_is_whole(const struct stackd_quiet_look* look);

/* Closes what the look has open. */
void stackd_quiet_end(struct stackd_quiet_look* look);

/* Whether the kernel goes on with the call after a handler with SA_RESTART, whatever the program: then the caller sees
 * nothing of a signal (signal(7)). False where that depends on what is not known here, such as a socket's timeout. */
bool stackd_call_is_restarted(const struct stackd_syscall* call);

/* Whether the kernel may sleep in the call where no signal ends it: on a disk, say. */
bool stackd_call_may_be_uninterruptible(const struct stackd_syscall* call);

/* The address of the thread's descriptor in the C library (fs base), 0 where that is not known, as with musl. */
uint64_t stackd_quiet_thread_self(uint32_t tid);

#endif /* STACKD_QUIET_READ_H_ */
