/* The signal that asks a thread for its stack. */
#ifndef STACKD_DUMP_SIGNAL_H_
#define STACKD_DUMP_SIGNAL_H_

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/sys/syscalls.h"

/* si_code of our own signals. Negative: the kernel accepts any such code from the process itself, and sends none of its own
 * (the lowest that it knows is -60). */
#define STACKD_SI_CODE (-0x5d)

/* Called once, before the first signal. NOT SIGNAL-SAFE. */
void stackd_dump_signal_init(int dump_signal);

/* The dump signal. SIGNAL-SAFE. */
int stackd_handler_signal(void) STACKD_HANDLER;

/* Whether this came from our helper. SIGNAL-SAFE. */
bool stackd_is_dump_signal(const siginfo_t* info) STACKD_HANDLER;

/* Sends the calling process's thread `tid` the question of dump `seq`, entry `index`. 0 or a negative errno. */
int stackd_send_dump_signal(int signal_number, int32_t pid, uint32_t tid, uint32_t index, uint32_t seq);

#endif /* STACKD_DUMP_SIGNAL_H_ */
