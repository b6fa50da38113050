/* The dump handler, and what it finds when it runs. */
#ifndef STACKD_HANDLER_H_
#define STACKD_HANDLER_H_

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/pointer_filter.h"
#include "agent/ring_writer.h"
#include "agent/thread_table.h"

/* si_code of our own signals. Negative: the kernel accepts any such code from the process itself, and sends none of its own
 * (the lowest that it knows is -60). */
#define STACKD_SI_CODE (-0x5d)

/* Called once, before the first signal. NOT SIGNAL-SAFE. */
void stackd_handler_init(stackd_filter_fn* filter);

/* Handlers from now on write to `ring`, or to nothing if NULL. `ring` must stay valid until stackd_handler_quiesce() says
 * that nobody uses it. */
void stackd_handler_set_ring(const struct stackd_ring* ring);

/* Waits until no handler runs that may have seen a former ring, at most `timeout_ns`. False: one still does, so the memory
 * must stay mapped. */
int stackd_handler_quiesce(uint64_t timeout_ns);

/* In the child of a fork: there is no ring, and no other thread that could be in a handler. */
void stackd_handler_reset_after_fork(void);

/* What the program wants done with the signal when it is not ours; installed in place of ours before the program asked for
 * it. The handler calls it for signals that the agent did not send. */
void stackd_handler_set_chain(const struct sigaction* action);
void stackd_handler_get_chain(struct sigaction* action);

/* Whether this came from our helper. SIGNAL-SAFE. */
bool stackd_is_dump_signal(const siginfo_t* info) STACKD_HANDLER;

/* The signal handler itself: HANDLER ONLY. */
void stackd_on_dump_signal(int signal_number, siginfo_t* info, void* context) STACKD_HANDLER;

/* Sends the calling process's thread `tid` the question of dump `seq`, entry `index`. 0 or a negative errno. */
int stackd_send_dump_signal(int signal_number, int32_t pid, uint32_t tid, uint32_t index, uint32_t seq);

#endif /* STACKD_HANDLER_H_ */
