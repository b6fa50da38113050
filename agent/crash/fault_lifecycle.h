/* A fault that a handler of the program is called for (active_fault.h): what is done before and after. And what is done
 * when the process ends or the thread jumps meanwhile (crash.h). HANDLER ONLY. */
#ifndef STACKD_FAULT_LIFECYCLE_H_
#define STACKD_FAULT_LIFECYCLE_H_

#include <stdbool.h>

#include "agent/crash/active_fault.h"
#include "agent/crash/crash_record.h"
#include "agent/signals/signal_frame.h"

/* Remembers the fault before the program's handler is called, on our own stack: the program's may be small. NULL: there is
 * no room for it. */
struct stackd_active_fault* stackd_fault_remember(const struct stackd_fault* fault,
                                                  const struct stackd_signal_frame* frame) STACKD_HANDLER;

/* Calls the program's handler, on the stack where that belongs (signal_frame.h), and deals with how it returned. */
void stackd_run_handler(int signal_number, siginfo_t* info, void* context,
                        const struct stackd_handler_call* call) STACKD_HANDLER;

/* Records the fault that the process ends of: `fault`, or the one whose handler that came in. See stackd_record_once(). */
void stackd_fault_record_origin(const struct stackd_fault* fault) STACKD_HANDLER;

/* Whether abort() raised the signal: it ends the process when the handler has returned; raise() does not. The return
 * address tells. */
bool stackd_fault_is_in_abort(const struct stackd_fault* fault) STACKD_HANDLER;

/* In the child of a fork. */
void stackd_fault_lifecycle_reset_after_fork(void);

#endif /* STACKD_FAULT_LIFECYCLE_H_ */
