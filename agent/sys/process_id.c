#include "agent/sys/process_id.h"

#include "agent/sys/fork_reset.h"

static STACKD_AT_FORK int32_t kept;

void stackd_keep_pid(void) { __atomic_store_n(&kept, stackd_getpid(), __ATOMIC_RELAXED); }

int32_t stackd_kept_pid(void) { return __atomic_load_n(&kept, __ATOMIC_RELAXED); }

bool stackd_is_other_process(void) { return stackd_getpid() != stackd_kept_pid(); }
