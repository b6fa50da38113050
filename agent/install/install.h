/* Inside of stackd_install() that the preload variant shares. NOT SIGNAL-SAFE. */
#ifndef STACKD_INSTALL_H_
#define STACKD_INSTALL_H_

#include <signal.h>
#include <stdbool.h>

typedef int stackd_sigaction_fn(int, const struct sigaction*, struct sigaction*);

/* stackd_install() with the sigaction() to use: the preload variant interposes that, and needs the real one here. `lazily`:
 * no helper is started before there is a thread, or work for it; the caller tells it of threads. */
int stackd_install_with(stackd_sigaction_fn* set_action, bool lazily);

/* Has the daemon wake the process by the second signal (wake_signal.h). 0 or a negative errno. */
int stackd_use_second_wake_signal(stackd_sigaction_fn* set_action);

/* The signal that the agent has taken for dumps, or 0. */
int stackd_taken_signal(void);

/* Whether the agent has taken this signal, for dumps or crashes. */
bool stackd_has_taken(int signal_number);

/* Whether dumps go on when the program has put a filter of system calls on itself: it was started so. */
bool stackd_has_dumps_under_filter(void);

/* Has the kernel do what the program's `action` for a taken signal asks for: our handler, with flags to match. Where the
 * program ignores a signal of crashes, it is ignored: such a signal interrupts nothing, and stays ignored in exec. */
int stackd_take_action(int signal_number, const struct sigaction* action, stackd_sigaction_fn* set_action);

#endif /* STACKD_INSTALL_H_ */
