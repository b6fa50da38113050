#include "agent/sys/target.h"

static int32_t other_pid; /* 0: this process */

void stackd_target_set(int32_t pid) { __atomic_store_n(&other_pid, pid, __ATOMIC_RELAXED); }

bool stackd_target_is_other(void) { return __atomic_load_n(&other_pid, __ATOMIC_RELAXED) != 0; }

int32_t stackd_target_pid(void) {
  int32_t pid = __atomic_load_n(&other_pid, __ATOMIC_RELAXED);
  return pid != 0 ? pid : stackd_getpid();
}
