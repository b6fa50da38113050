/* Has a thread repeat the system call that a handler of the agent's has ended with EINTR. The program then never knows of
 * the signal. The kernel repeats some calls by itself (SA_RESTART), and none that waits with a timeout. */
#ifndef STACKD_REPEAT_CALL_H_
#define STACKD_REPEAT_CALL_H_

#include "agent/sys/syscalls.h"

/* Changes `ucontext`, which the kernel gave the handler, so that the call is repeated. Leaves it alone, and the call
 * returns EINTR, if its number is not known, or is none of those in its table. So it does where the time that the call had
 * left is not known within a minute, and where another signal waits for the thread.
 *
 * The caller does it last, with all signals blocked. A signal that comes after this look is handled before the call is
 * repeated, as one that comes right before any call.
 *
 * SIGNAL-SAFE. Syscalls: those of stackd_ended_call_number(), process_vm_readv, getsockopt, rt_sigpending. */
void stackd_repeat_call(void* ucontext) STACKD_HANDLER;

#endif /* STACKD_REPEAT_CALL_H_ */
