/* The number of this process, kept. A child of vfork() knows itself by it: it has its parent's memory, and so the number of
 * its parent. */
#ifndef STACKD_PROCESS_ID_H_
#define STACKD_PROCESS_ID_H_

#include <stdbool.h>

#include "agent/sys/syscalls.h"

/* At the start, and in the child of a fork. SIGNAL-SAFE. */
void stackd_keep_pid(void) STACKD_HANDLER;

/* Makes no system call: a sandbox may have an answer of its own to getpid(). SIGNAL-SAFE. */
int32_t stackd_kept_pid(void) STACKD_HANDLER;

/* Whether this is another process with the same memory. SIGNAL-SAFE. */
bool stackd_is_other_process(void) STACKD_HANDLER;

#endif /* STACKD_PROCESS_ID_H_ */
