/* What the agent's one thread does (life.h says when it is there): keeps the connection, opens files for the daemon, runs
 * dumps. It blocks all signals and sleeps until there is something to do. */
#ifndef STACKD_HELPER_THREAD_H_
#define STACKD_HELPER_THREAD_H_

#include <stdbool.h>

#include "agent/helper/process.h"

/* Before it is started; `settings` and `files` must stay. `use_bell`: the daemon can wake a process in which it does not
 * run (bell.h). */
void stackd_helper_prepare(const struct stackd_settings* settings, struct stackd_process_files* files, bool use_bell);

/* Until it is to end (life.h). */
void stackd_helper_run(void);

/* In the child of a fork, before it starts a helper of its own. */
void stackd_helper_reset_after_fork(void);

#endif /* STACKD_HELPER_THREAD_H_ */
