/* The dump handler, and what it finds when it runs. */
#ifndef STACKD_DUMP_HANDLER_H_
#define STACKD_DUMP_HANDLER_H_

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/capture/pointer_filter.h"
#include "agent/dump/thread_table.h"
#include "agent/ring/ring_writer.h"
#include "agent/signals/signal_frame.h"

/* si_code of our own signals. Negative: the kernel accepts any such code from the process itself, and sends none of its own
 * (the lowest that it knows is -60). */
#define STACKD_SI_CODE (-0x5d)

/* Called once, before the first signal. NOT SIGNAL-SAFE. */
void stackd_handler_init(stackd_filter_fn* filter, int dump_signal);

/* The dump signal. SIGNAL-SAFE. */
int stackd_handler_signal(void) STACKD_HANDLER;

/* Handlers from now on write to `ring`, or to nothing if NULL. `ring` must stay valid until stackd_handler_quiesce() says
 * that nobody uses it. */
void stackd_handler_set_ring(const struct stackd_ring* ring);

/* Waits until no handler runs that may have seen a former ring, at most `timeout_ns`. False: one still does, so the memory
 * must stay mapped. */
int stackd_handler_quiesce(uint64_t timeout_ns);

/* In the child of a fork: there is no ring, and no other thread that could be in a handler. */
void stackd_handler_reset_after_fork(void);

/* Whether this came from our helper. SIGNAL-SAFE. */
bool stackd_is_dump_signal(const siginfo_t* info) STACKD_HANDLER;

/* Around whatever uses stackd_code_ranges_current(): the helper writes no newer ranges meanwhile. HANDLER ONLY. */
void stackd_handler_enter(void) STACKD_HANDLER;
void stackd_handler_leave(void) STACKD_HANDLER;

/* What the handlers of crashes need too; `ucontext` is the third argument of a signal handler. stackd_has_room(): whether
 * `bytes` are left on this stack. HANDLER ONLY. */
void stackd_copy_registers(const void* ucontext, uint64_t regs[STACKD_REGISTERS]) STACKD_HANDLER;
struct stackd_interval stackd_alternate_stack(const void* ucontext) STACKD_HANDLER;
int stackd_has_room(const void* ucontext, uint64_t bytes) STACKD_HANDLER;

/* The signal handler itself: HANDLER ONLY. */
void stackd_on_dump_signal(int signal_number, siginfo_t* info, void* context) STACKD_HANDLER;

/* Calls the program's handler for a signal of this number that somebody else sent, on the stack where that belongs
 * (signal_frame.h): HANDLER ONLY. */
void stackd_pass_on(int signal_number, siginfo_t* info, void* context,
                    const struct stackd_handler_call* call) STACKD_HANDLER;

/* Sends the calling process's thread `tid` the question of dump `seq`, entry `index`. 0 or a negative errno. */
int stackd_send_dump_signal(int signal_number, int32_t pid, uint32_t tid, uint32_t index, uint32_t seq);

#endif /* STACKD_DUMP_HANDLER_H_ */
