/* The process that is looked at: this one. In stackctl, which reads a process from outside with the same code, another one.
 */
#ifndef STACKD_TARGET_H_
#define STACKD_TARGET_H_

#include <stdbool.h>

#include "agent/sys/syscalls.h"

/* From now on that process is looked at, as this one's PID namespace counts. The agent never calls it. */
void stackd_target_set(int32_t pid);

/* SIGNAL-SAFE. */
int32_t stackd_target_pid(void) STACKD_HANDLER;

/* Whether nothing of what is looked at lies in this process's own memory. Makes no system call. SIGNAL-SAFE. */
bool stackd_target_is_other(void) STACKD_HANDLER;

#endif /* STACKD_TARGET_H_ */
