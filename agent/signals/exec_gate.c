#include "agent/signals/exec_gate.h"

#include <signal.h>
#include <stdatomic.h>

#include "agent/signals/dump_signal.h"
#include "agent/sys/fork_reset.h"
#include "agent/sys/process_id.h"
#include "agent/sys/syscalls.h"

static atomic_int closed;
static atomic_int inside;
static atomic_bool was_entered;

void stackd_exec_gate_reset_after_fork(void) {
  STACKD_RESET(closed, 0);
  STACKD_RESET(inside, 0);
  STACKD_RESET(was_entered, false);
}

/* A signal that is not blocked was delivered when the system call before this one returned. One that is blocked would stay
 * for the new program. */
static void discard_pending(int dump_signal) {
  uint64_t set = 1ull << (dump_signal - 1);
  struct timespec no_time = {0, 0};
  siginfo_t info;
  while (stackd_syscall6(SYS_rt_sigtimedwait, (long)&set, (long)&info, (long)&no_time, 8, 0, 0) == dump_signal) {
    if (stackd_is_dump_signal(&info)) continue;
    /* A signal that another sender queued. */
    stackd_syscall6(SYS_rt_tgsigqueueinfo, stackd_getpid(), stackd_gettid(), dump_signal, (long)&info, 0, 0);
    return;
  }
}

bool stackd_exec_gate_close(int dump_signal) {
  if (stackd_is_other_process()) return false;
  atomic_fetch_add(&closed, 1);
  while (atomic_load(&inside) != 0) {
    /* Not sched_yield(): a real-time thread would never let the helper finish. */
    struct timespec pause = {0, 20000};
    stackd_syscall6(SYS_nanosleep, (long)&pause, 0, 0, 0, 0, 0);
  }
  if (atomic_load(&was_entered)) {
    stackd_gettid();
    discard_pending(dump_signal);
  }
  return true;
}

void stackd_exec_gate_open(void) { atomic_fetch_sub(&closed, 1); }

bool stackd_exec_gate_enter(void) {
  atomic_store(&inside, 1);
  if (atomic_load(&closed) == 0) {
    atomic_store(&was_entered, true);
    return true;
  }
  atomic_store(&inside, 0);
  return false;
}

void stackd_exec_gate_leave(void) { atomic_store(&inside, 0); }
