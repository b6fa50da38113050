/* Whether the program has put a filter of system calls on itself. Then each call of the agent's own may be its end, and
 * none is made that can be left out. */
#ifndef STACKD_FILTERED_H_
#define STACKD_FILTERED_H_

#include <stdbool.h>

#include "agent/sys/syscalls.h"

/* From now on, in children too. SIGNAL-SAFE. */
void stackd_set_filtered(void) STACKD_HANDLER;
bool stackd_is_filtered(void) STACKD_HANDLER;

#endif /* STACKD_FILTERED_H_ */
