/* Has a thread repeat the system call that a handler of the agent's has ended with EINTR. The program then never knows of
 * the signal. The kernel repeats some calls by itself (SA_RESTART), and none that waits with a timeout. */
#ifndef STACKD_REPEAT_CALL_H_
#define STACKD_REPEAT_CALL_H_

#include "agent/sys/syscalls.h"

/* Changes `ucontext`, which the kernel gave the handler, so that the call is repeated. Leaves it alone, so that the call
 * returns EINTR, where
 *   - its number is not known, or is none of those in its table;
 *   - the time that the call had left is not known within a minute;
 *   - a handler of the program's may have ended the call, or a signal for the program waits.
 *
 * The caller does it last, with all signals blocked. A signal that comes after this look is handled before the call is
 * repeated, as one that comes right before any call.
 *
 * SIGNAL-SAFE. Syscalls: those of stackd_ended_call_number(), process_vm_readv, getsockopt, rt_sigaction, rt_sigpending. */
void stackd_repeat_call(void* ucontext) STACKD_HANDLER;

#endif /* STACKD_REPEAT_CALL_H_ */
