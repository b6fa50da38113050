/* The signal by which the daemon has the helper started (helper/bell.h). Its default action is none: a program that takes
 * the handler away loses nothing but its dumps. */
#ifndef STACKD_WAKE_SIGNAL_H_
#define STACKD_WAKE_SIGNAL_H_

#include <signal.h>
#include <stdbool.h>

#include "agent/sys/syscalls.h"

#define STACKD_WAKE_SIGNAL SIGURG
/* Taken in its place in a program that reads SIGURG from a signalfd, as PostgreSQL does. Not from the start: a program that
 * leaves it alone is not to be interrupted when its terminal changes its size. */
#define STACKD_SECOND_WAKE_SIGNAL SIGWINCH

/* The one in use. SIGNAL-SAFE. */
int stackd_wake_signal(void) STACKD_HANDLER;
void stackd_wake_signal_use_second(void);

/* The fd of the bell from now on; -1: none. */
void stackd_wake_signal_set_fd(int fd);

/* Whether this came from the bell. SIGNAL-SAFE. */
bool stackd_is_wake_signal(const siginfo_t* info) STACKD_HANDLER;

#endif /* STACKD_WAKE_SIGNAL_H_ */
