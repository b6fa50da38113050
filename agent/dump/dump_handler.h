/* The dump handler. */
#ifndef STACKD_DUMP_HANDLER_H_
#define STACKD_DUMP_HANDLER_H_

#include <signal.h>

#include "agent/ring/ring_writer.h"
#include "agent/signals/signal_frame.h"

/* Handlers from now on write to `ring`, or to nothing if NULL. `ring` must stay valid until stackd_handler_quiesce() says
 * that no handler uses it. */
void stackd_handler_set_ring(const struct stackd_ring* ring);

/* In the child of a fork: there is no ring, and no other thread that could be in a handler. */
void stackd_handler_reset_after_fork(void);

/* The signal handler itself: HANDLER ONLY. */
void stackd_on_dump_signal(int signal_number, siginfo_t* info, void* context) STACKD_HANDLER;

/* Treats a signal that was not the helper's as the kernel would have without the agent. HANDLER ONLY. */
void stackd_leave_to_program(int signal_number, siginfo_t* info, void* context) STACKD_HANDLER;

/* Calls the program's handler for a signal of this number that is none of the agent's, on the stack where that belongs
 * (signal_frame.h): HANDLER ONLY. */
void stackd_pass_on(int signal_number, siginfo_t* info, void* context,
                    const struct stackd_handler_call* call) STACKD_HANDLER;

#endif /* STACKD_DUMP_HANDLER_H_ */
