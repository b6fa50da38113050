/* Counts the SIGTERMs that the program takes. The daemon reads the count in the memory of the process, and so knows of one
 * that was told to end and is still there.
 *
 * A handler of the program's gets a trampoline. That is a few instructions of ours that stand in its place in the kernel,
 * add 1 to a word and jump on. That cannot harm because
 *   - a trampoline belongs to one handler for ever, so that there is no state that could be wrong. Code that gets hold of a
 * trampoline has a function that does what the handler does: the C library's own functions pass actions on unseen;
 *   - flags and mask are the program's and the kernel does what they ask for: SA_RESETHAND, SA_NODEFER, SA_RESTART;
 *   - it needs no stack, changes no register but flags, and makes no system call. It touches nothing but two words of this
 *     library. Every process that could run it has those, children of fork and vfork too. */
#ifndef STACKD_SIGTERM_H_
#define STACKD_SIGTERM_H_

#include <stdint.h>

#include "agent/sys/syscalls.h"

typedef void stackd_signal_handler(int);

/* Grows with each that the program takes, if only by one of two that come at the same time. */
extern uint64_t stackd_sigterm_count;

/* The trampoline to the handler; `handler` itself if it is none (SIG_DFL, SIG_IGN), a trampoline already, or one too many.
 * SIGNAL-SAFE, any thread. */
stackd_signal_handler* stackd_sigterm_trampoline_to(stackd_signal_handler* handler) STACKD_HANDLER;

/* The handler behind a trampoline; `handler` itself if that is none. SIGNAL-SAFE, any thread. */
stackd_signal_handler* stackd_sigterm_behind(stackd_signal_handler* handler) STACKD_HANDLER;

/* The program took one by itself: sigwait(). SIGNAL-SAFE, any thread. */
void stackd_sigterm_add(void) STACKD_HANDLER;

#endif /* STACKD_SIGTERM_H_ */
