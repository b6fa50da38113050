/* The tasks of a runtime in this process, as what it registered tells them. That is code of the program's, so it is asked
 * on a thread that the C library has made. It is there from the first registration on. */
#ifndef STACKD_TASK_SOURCE_H_
#define STACKD_TASK_SOURCE_H_

#include <stdbool.h>

#include "stackd/agent.h"

/* The C library's count of threads, from which the agent's is to be taken off. A process ends when its last thread does,
 * and the agent's never does. Before stackd_task_source_set(). */
void stackd_task_source_hide_from(unsigned* thread_count);

/* NULL: none. 0 or a negative errno. NOT SIGNAL-SAFE; any thread of the program. */
int stackd_task_source_set(stackd_task_source_fn* source);
bool stackd_task_source_is_set(void);

/* In the child of a fork: there is none. */
void stackd_task_source_reset_after_fork(void);

/* Asks it for at most `limit_ms`. Returns the fd of a sealed file in memory, which the caller drops (private_fd.h), or a
 * negative errno. That is -ENODATA where it had nothing to say in time. Helper thread only. */
int stackd_task_table(unsigned limit_ms);

#endif /* STACKD_TASK_SOURCE_H_ */
