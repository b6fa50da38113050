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

/* Has the daemon list this process, if there is one, in the place of a helper that does not run; does not wait.
 * SIGNAL-SAFE; any thread. */
void stackd_helper_introduce(void);

/* The same in a process that has just begun, or has just been forked, and may end soon: with less work. A child whose
 * parent found no daemon a moment ago does not look for one. */
void stackd_helper_introduce_at_start(void);
void stackd_helper_introduce_child(void);

/* Before the program changes its rights or its root: looks at what the process may not see afterwards. SIGNAL-SAFE; any
 * thread. */
void stackd_helper_before_change(void);

/* Whether a daemon was there at the last look. SIGNAL-SAFE. */
bool stackd_helper_has_daemon(void);

/* The daemon wakes this process by stackd_wake_signal() from now on. SIGNAL-SAFE. */
void stackd_helper_change_wake_signal(void);

/* The daemon cannot wake this process any more. SIGNAL-SAFE. */
void stackd_helper_silence(void);

/* Whether it is time to do so again, since the daemon may have come later than the process: true once a second at most.
 * Makes no system call. SIGNAL-SAFE; any thread. */
bool stackd_helper_has_occasion(void);

/* In the child of a fork, before it starts a helper of its own. */
void stackd_helper_reset_after_fork(void);

#endif /* STACKD_HELPER_THREAD_H_ */
