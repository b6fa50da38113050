/* Which arguments of a system call may leave the process.
 *
 * A system call that a thread sleeps in says what it waits for. It also holds data of the program's: addresses and lengths
 * of its buffers, offsets, what the unused argument registers happen to hold. So an argument is kept only if the table
 * names it, and only as many of its bits as the kernel looks at. It names
 *   - fds, pids and the ids of System V objects;
 *   - addresses of futex words, of the arrays of poll() and select(), and of timeouts: no contents;
 *   - how many fds, events or operations;
 *   - operations, flags and clocks.
 * It never names a buffer, a path, the length of data, an offset in a file, or a value that a program passes to another. Of
 * a call that is not in the table only the number is kept.
 */
#ifndef STACKD_SYSCALL_ARGUMENTS_H_
#define STACKD_SYSCALL_ARGUMENTS_H_

#include <stdint.h>

#include "agent/sys/syscalls.h"
#include "stackd/ring_abi.h"

/* No number of x86-64 is as high. */
#define STACKD_SYSCALL_NUMBERS 1024u

/* Fills in `call`: system call `number`, and those of its arguments (rdi rsi rdx r10 r8 r9) that are kept. An argument that
 * the kernel takes as an int is sign-extended from its low 32 bits.
 *
 * SIGNAL-SAFE. Syscalls: none. */
void stackd_syscall_keep(uint32_t number, const uint64_t arguments[STACKD_SYSCALL_ARGUMENTS],
                         struct stackd_syscall* call) STACKD_HANDLER;

#endif /* STACKD_SYSCALL_ARGUMENTS_H_ */
