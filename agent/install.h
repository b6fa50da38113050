/* Inside of stackd_install() that the preload variant shares. NOT SIGNAL-SAFE. */
#ifndef STACKD_INSTALL_H_
#define STACKD_INSTALL_H_

#include <signal.h>

typedef int stackd_sigaction_fn(int, const struct sigaction*, struct sigaction*);

/* stackd_install() with the sigaction() to use: the preload variant interposes that, and needs the real one here. */
int stackd_install_with(stackd_sigaction_fn* set_action);

/* The signal that the agent has taken, or 0. */
int stackd_taken_signal(void);

#endif /* STACKD_INSTALL_H_ */
