/* Has a thread repeat the system call that a handler of the agent's has ended with EINTR. The program then never knows of
 * the signal. The kernel repeats some calls by itself (SA_RESTART), and none that waits with a timeout. */
#ifndef STACKD_REPEAT_CALL_H_
#define STACKD_REPEAT_CALL_H_

#include <stdint.h>

#include "agent/sys/syscalls.h"

/* A call that is made again with its whole timeout may end so much too late. */
#define STACKD_REPEAT_ANEW_S 60
/* Each timeout begins anew: for signals that meet no thread that has been in its call for long. */
#define STACKD_REPEAT_EACH_S UINT32_MAX

/* Looks at what handlers the program has, for the calls of stackd_repeat_call() that come next. A timeout of
 * `begins_anew_s` seconds at most begins anew if it is not known how much of it is left. The call then ends later by what
 * had passed.
 *
 * SIGNAL-SAFE. Syscalls: rt_sigaction for each signal. */
void stackd_repeat_prepare(uint32_t begins_anew_s) STACKD_HANDLER;

/* Changes `ucontext`, which the kernel gave the handler, so that the call is repeated. Leaves it alone, so that the call
 * returns EINTR, where
 *   - its number is not known, or is none of those in its table;
 *   - the time that the call had left is not known, and does not begin anew;
 *   - a handler of the program's may have ended the call, or a signal for the program waits.
 *
 * The caller does it last, with all signals blocked. A signal that comes after this look is handled before the call is
 * repeated, as one that comes right before any call.
 *
 * SIGNAL-SAFE. Syscalls: those of stackd_ended_call_number(), process_vm_readv, getsockopt, rt_sigpending. */
void stackd_repeat_call(void* ucontext) STACKD_HANDLER;

#endif /* STACKD_REPEAT_CALL_H_ */
