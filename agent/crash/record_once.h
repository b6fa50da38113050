/* One thread of a process writes the record of a crash (crash.h): which thread, and how far it is. HANDLER ONLY, but for
 * the first and the last. */
#ifndef STACKD_RECORD_ONCE_H_
#define STACKD_RECORD_ONCE_H_

#include <signal.h>

#include "agent/crash/crash_record.h"
#include "agent/sys/private_fd.h"

/* Called once, before the first signal; see stackd_crash_init(). NOT SIGNAL-SAFE. */
void stackd_record_once_init(const struct stackd_own_fd* maps, const struct stackd_own_fd* spare);

/* Records `fault` unless another thread does, and returns when the process may end. The thread's signal mask is another
 * afterwards. `end_signal` is what the process dies of: a handler that was called for the fault may have raised another
 * signal. 0: it exits. */
void stackd_record_once(const struct stackd_fault* fault, int end_signal, siginfo_t* end_info) STACKD_HANDLER;

/* Writes the record of a crash that was begun, and holds the process. Called by its name from assembly. */
void stackd_record_now(void) STACKD_HANDLER;

/* Whether a thread has begun to record, or has done so. */
bool stackd_record_has_begun(void) STACKD_HANDLER;

/* Whether a fault of the calling thread is one of the handler's own. */
bool stackd_record_is_own_fault(void) STACKD_HANDLER;

/* Ends what such a fault has interrupted, and tells what the process is to die of. False: it was to exit. */
bool stackd_record_after_own_fault(int* end_signal, siginfo_t** end_info) STACKD_HANDLER;

/* Whether the process is dying of another thread's crash: but for us, it would be dead. */
bool stackd_record_is_dying_elsewhere(void) STACKD_HANDLER;

/* Waits until it is, which it should be before this returns. */
void stackd_record_await_death(void) STACKD_HANDLER;

#define STACKD_SIGNAL_BIT(signal_number) (1ull << ((signal_number) - 1))

/* The signal mask of a thread that crashes: all but faults. Blocked, a fault of the handler's own would kill it. */
#define STACKD_CRASH_MASK                                                                                             \
  (~(STACKD_SIGNAL_BIT(SIGSEGV) | STACKD_SIGNAL_BIT(SIGBUS) | STACKD_SIGNAL_BIT(SIGILL) | STACKD_SIGNAL_BIT(SIGFPE) | \
     STACKD_SIGNAL_BIT(SIGTRAP) | STACKD_SIGNAL_BIT(SIGSYS)))

/* In the child of a fork. */
void stackd_record_once_reset_after_fork(void);

#endif /* STACKD_RECORD_ONCE_H_ */
