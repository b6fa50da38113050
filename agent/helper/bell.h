/* How the daemon wakes a process in which no helper runs: a pair of sockets, of which the daemon has one end. A byte there
 * is a signal here (signals/wake_signal.h). */
#ifndef STACKD_BELL_H_
#define STACKD_BELL_H_

#include "agent/sys/private_fd.h"

/* Makes a new pair; `*ours` is the end of this process, in the place of the one it had. The other end, which the caller
 * closes when it is sent; or a negative errno. SIGNAL-SAFE. */
int stackd_bell_make(struct stackd_own_fd* ours);

/* Has a byte there be stackd_wake_signal() from now on. SIGNAL-SAFE. */
void stackd_bell_set_signal(const struct stackd_own_fd* ours);

#endif /* STACKD_BELL_H_ */
