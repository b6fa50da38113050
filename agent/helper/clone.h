/* A thread that the C library does not know, made by the kernel's clone(). No lock of that library is taken: a forked child
 * may have inherited them locked. To the library the process stays one of a single thread. The thread may call nothing of
 * the C library but functions of memory and strings: sys/kernel.h. */
#ifndef STACKD_CLONE_H_
#define STACKD_CLONE_H_

#include <stdint.h>

#include "agent/sys/syscalls.h"

/* Starts `run` on a stack of the agent's, with the caller's signal mask, rights and name. There is one such thread at a
 * time. `*tid` is its number before this returns, and 0, with a futex wake that is not private, when it has ended. 0 or a
 * negative errno. SIGNAL-SAFE. */
int stackd_clone_thread(void (*run)(void), uint32_t* tid) STACKD_HANDLER;

#endif /* STACKD_CLONE_H_ */
