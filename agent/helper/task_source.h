/* The tasks of a runtime in this process, as what it registered tells them. Helper thread only: NOT SIGNAL-SAFE. */
#ifndef STACKD_TASK_SOURCE_H_
#define STACKD_TASK_SOURCE_H_

#include "stackd/agent.h"

/* Asks `source`, which may be NULL, for at most `limit_ms`. The fd of a sealed file in memory, which the caller drops
 * (private_fd.h); or a negative errno: -ENODATA where it had nothing to say in time. */
int stackd_task_table(stackd_task_source_fn* source, unsigned limit_ms);

#endif /* STACKD_TASK_SOURCE_H_ */
