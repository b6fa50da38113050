/* Which system call a signal has interrupted, from registers and code.
 *
 * A signal finds a thread that slept in a system call in one of two states. Where the kernel will make the call again, rip
 * is at the `syscall` instruction and rax is its number. Where it will not (calls with a timeout), rip is behind the
 * instruction and rax is -EINTR. The number is then known only if the code loads it right before, as a constant or from the
 * stack. The C library does so in all of its calls but syscall().
 */
#ifndef STACKD_INTERRUPTED_SYSCALL_H_
#define STACKD_INTERRUPTED_SYSCALL_H_

#include <stdbool.h>
#include <stdint.h>

#include "agent/sys/syscalls.h"
#include "stackd/ring_abi.h"

/* The call that the thread of `ucontext` was in; all zero if it was in none, or its number is not known.
 *
 * SIGNAL-SAFE. Syscalls: rt_sigprocmask, once or twice, to see whether the code can be read. Where the number is on the
 * stack, up to six times more, and process_vm_readv once or twice. */
void stackd_interrupted_call(const void* ucontext, struct stackd_syscall* call) STACKD_HANDLER;

/* The number of the call that a signal has ended with EINTR in the thread of `ucontext`; -1 if none is known.
 *
 * SIGNAL-SAFE. Syscalls: as above. */
int stackd_ended_call_number(const void* ucontext) STACKD_HANDLER;

/* What stackd_syscall_number_in() looks at. */
#define STACKD_CALL_CODE_BYTES 11

/* The number that `code`, which ends with a `syscall` instruction, loads right before that; or -1. SIGNAL-SAFE. */
int stackd_syscall_number_in(const uint8_t code[STACKD_CALL_CODE_BYTES]) STACKD_HANDLER;

/* The number of the call that ends at `rip`, if the code takes it from the stack; or -1. `rbp` may be 0 for "not known".
 * `pid` is the process itself, whose memory the kernel reads, but for what stays because the calling thread is in that call
 * (`is_own`).
 *
 * SIGNAL-SAFE. Syscalls: process_vm_readv, up to four times; if `is_own`, rt_sigprocmask instead of most of them. */
int stackd_syscall_number_on_stack(int32_t pid, bool is_own, uint64_t rip, uint64_t rsp, uint64_t rbp) STACKD_HANDLER;

#endif /* STACKD_INTERRUPTED_SYSCALL_H_ */
