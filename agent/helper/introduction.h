/* How the daemon comes to list a process in which no helper runs, and to wake it. SIGNAL-SAFE; any thread. */
#ifndef STACKD_INTRODUCTION_H_
#define STACKD_INTRODUCTION_H_

#include <stdbool.h>

/* Has the daemon list this process, if there is one, in the place of a helper that does not run; does not wait. */
void stackd_helper_introduce(void);

/* The same in a process that has just begun, or has just been forked, and may end soon: with less work. A child whose
 * parent found no daemon a moment ago does not look for one. */
void stackd_helper_introduce_at_start(void);
void stackd_helper_introduce_child(void);

/* Before the program changes its rights or its root: looks at what the process may not see afterwards. */
void stackd_helper_before_change(void);

/* Whether a daemon was there at the last look. */
bool stackd_helper_has_daemon(void);

/* The daemon wakes this process by stackd_wake_signal() from now on. */
void stackd_helper_change_wake_signal(void);

/* The daemon cannot wake this process any more. */
void stackd_helper_silence(void);

/* Whether it is time to introduce it again, since the daemon may have come later than it: true once a second at most.
 * Makes no system call. */
bool stackd_helper_has_occasion(void);

#endif /* STACKD_INTRODUCTION_H_ */
