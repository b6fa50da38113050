/* The handler of the signals that end a program.
 *
 * The agent is the handler that the kernel knows; what the program wants done is in the chain (sigchain.h).
 *
 *     program's action                  what happens
 *     default, or no room to run it     FINAL: record, hold, then the default action with the same siginfo and context
 *     ignore                            the kernel knows no handler of ours (preload/signal.c)
 *     a handler                         TENTATIVE: it is called; FINAL if it does not recover (active_fault.h)
 *
 * One thread of a process writes the final record: the winner. Threads that crash while it does wait for it.
 *
 *     NONE --(winner)--> CAPTURING --(winner)--> COMMITTED --(winner)--> OVER
 *
 * A fault of the handler itself brings the winner here again. In CAPTURING it commits what is there (the registers were
 * written first), later it just ends. Nothing is tried twice, so nothing spins.
 */
#ifndef STACKD_CRASH_H_
#define STACKD_CRASH_H_

#include <signal.h>
#include <stdint.h>

#include "agent/ring/ring_writer.h"
#include "agent/signals/signal_frame.h"
#include "agent/sys/private_fd.h"

/* What the handler needs of a connection to the daemon. */
struct stackd_crash_link {
  const struct stackd_ring* ring;
  struct stackd_own_fd socket;
};

/* Called once, before the first signal; `maps` and `spare` must stay. `spare` is an fd that is of no use to a process that
 * crashes, and makes room for another where there is none. NOT SIGNAL-SAFE. */
void stackd_crash_init(uint64_t hold_ns, const struct stackd_own_fd* maps, const struct stackd_own_fd* spare);

/* Where abort() begins: a handler of its signal that returns does not keep the process alive. Before stackd_crash_init().
 */
void stackd_crash_set_abort(uint64_t code);

/* Crashes from now on are told to this daemon, or to none if NULL. `link` and its ring must stay valid until
 * stackd_crash_is_using_link() says no. Helper thread only. */
void stackd_crash_set_link(const struct stackd_crash_link* link);
bool stackd_crash_is_using_link(void);

/* The file of a daemon's for a crash that no daemon takes. It outlives the connection: a process may not be able to make
 * one itself. `spool` and its fd must stay valid as a link must. Helper thread only. */
void stackd_crash_set_spool(const struct stackd_own_fd* spool);

/* Has the helper started, if it may be (helper/life.c). SIGNAL-SAFE. */
void stackd_crash_start_helper(void) STACKD_HANDLER;

/* Called once the helper has found a daemon, or that there is none. A thread that crashes before waits for that, since most
 * programs that crash at their start do so before the helper can register them. Helper thread, or the thread that failed to
 * start it. */
void stackd_crash_helper_has_tried(void);

/* The helper leaves: a thread that crashes is to start it again. Helper thread only. */
void stackd_crash_helper_leaves(void);

/* Waits for stackd_crash_helper_has_tried(), so long at most. Not for handlers: for a thread that wants something of the
 * daemon. */
void stackd_crash_await_helper(uint64_t duration_ns);

/* Waits, so long at most, until a daemon that is there has this process and knows what is mapped in it. Not for handlers.
 */
void stackd_crash_make_known(uint64_t duration_ns);

/* In the child of a fork. */
void stackd_crash_reset_after_fork(void);

/* The process is about to end by exit() or exec. In a handler of the program, that ends what the handler was called for.
 * While another thread's crash is being dealt with it does not return: the process ends of that. SIGNAL-SAFE. */
void stackd_crash_before_end(void) STACKD_HANDLER;

/* The thread is about to leave what it is in by longjmp(). SIGNAL-SAFE; next to nothing while no tentative record is out.
 */
void stackd_crash_before_jump(void) STACKD_HANDLER;

/* The thread whose crash is being dealt with, or 0. SIGNAL-SAFE, any thread. */
uint32_t stackd_crash_winner(void) STACKD_HANDLER;

/* Writes the record of a crash that was begun, and holds the process: HANDLER ONLY. Called by its name from assembly. */
void stackd_crash_record_now(void) STACKD_HANDLER;

/* The signal handler itself: HANDLER ONLY. */
void stackd_on_crash_signal(int signal_number, siginfo_t* info, void* context) STACKD_HANDLER;

/* Calls the program's handler, on the stack where that belongs (signal_frame.h): HANDLER ONLY. */
void stackd_run_handler(int signal_number, siginfo_t* info, void* context,
                        const struct stackd_handler_call* call) STACKD_HANDLER;

#endif /* STACKD_CRASH_H_ */
