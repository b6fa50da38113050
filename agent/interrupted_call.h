/* Which system call a signal has interrupted, from registers and code.
 *
 * A signal finds a thread that slept in a system call in one of two states. Where the kernel will make the call again, rip
 * is at the `syscall` instruction and rax is its number. Where it will not (calls with a timeout), rip is behind the
 * instruction and rax is -EINTR: the number is then known only if the code loads it as a constant right before, as the C
 * library does in all of its calls but syscall(); or if it is an argument of the function of glibc that makes all calls
 * that can be cancelled, from 2.41 on.
 */
#ifndef STACKD_INTERRUPTED_CALL_H_
#define STACKD_INTERRUPTED_CALL_H_

#include <stdint.h>

#include "agent/syscalls.h"
#include "stackd/ring_abi.h"

/* The call that the thread of `ucontext` was in; all zero if it was in none, or its number is not known.
 *
 * SIGNAL-SAFE. Syscalls: rt_sigprocmask, once or twice, to see whether the code can be read. */
void stackd_interrupted_call(const void* ucontext, struct stackd_syscall* call) STACKD_HANDLER;

/* What stackd_syscall_number_in() looks at. */
#define STACKD_CALL_CODE_BYTES 11

/* The number that `code`, which ends with a `syscall` instruction, loads right before that; or -1. SIGNAL-SAFE. */
int stackd_syscall_number_in(const uint8_t code[STACKD_CALL_CODE_BYTES]) STACKD_HANDLER;

#endif /* STACKD_INTERRUPTED_CALL_H_ */
