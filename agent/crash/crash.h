/* The handler of the signals that end a program.
 *
 * The agent is the handler that the kernel knows; what the program wants done is in the chain (sigchain.h).
 *
 *     program's action                  what happens
 *     default, or no room to run it     FINAL: record, hold, then the default action with the same siginfo and context
 *     ignore                            the kernel knows no handler of ours (preload/signal.c)
 *     a handler                         TENTATIVE: it is called; FINAL if it does not recover (active_fault.h)
 *
 * One thread of a process writes the final record (record_once.h). Threads that crash while it does wait for it.
 *
 *     NONE --(first thread)--> CAPTURING --(it)--> COMMITTED --(it)--> OVER
 *
 * A fault of the handler itself brings that thread here again. In CAPTURING it commits what is there (the registers were
 * written first), later it just ends. Nothing is tried twice, so nothing spins.
 */
#ifndef STACKD_CRASH_H_
#define STACKD_CRASH_H_

#include <signal.h>
#include <stdint.h>

#include "agent/sys/private_fd.h"

/* Called once, before the first signal; `maps` and `spare` must stay. `spare` is an fd that is of no use to a process that
 * crashes, and makes room for another where there is none. NOT SIGNAL-SAFE. */
void stackd_crash_init(uint64_t hold_ns, const struct stackd_own_fd* maps, const struct stackd_own_fd* spare);

/* Where abort() begins: a handler of its signal that returns does not keep the process alive. Before stackd_crash_init().
 */
void stackd_crash_set_abort(uint64_t code);

/* In the child of a fork. */
void stackd_crash_reset_after_fork(void);

/* The process is about to end by exit() or exec. In a handler of the program, that ends what the handler was called for.
 * While another thread's crash is being dealt with it does not return: the process ends of that. SIGNAL-SAFE. */
void stackd_crash_before_end(void) STACKD_HANDLER;

/* The thread is about to leave what it is in by longjmp(). SIGNAL-SAFE; next to nothing while no tentative record is out.
 */
void stackd_crash_before_jump(void) STACKD_HANDLER;

/* The thread whose crash is being dealt with, or 0. SIGNAL-SAFE, any thread. */
uint32_t stackd_crash_recording_tid(void) STACKD_HANDLER;

/* The signal handler itself: HANDLER ONLY. */
void stackd_on_crash_signal(int signal_number, siginfo_t* info, void* context) STACKD_HANDLER;

#endif /* STACKD_CRASH_H_ */
