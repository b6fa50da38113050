/* Keeps dump signals away from a thread that calls exec. exec gives every caught signal its default action back and keeps
 * what is pending. So one sent meanwhile would end the new program, and execve() lasts long enough for that.
 *
 *     program's thread                       helper
 *       stackd_exec_gate_close()
 *         adds 1 to `closed`                   stackd_exec_gate_enter(): sets `inside`; takes it back if closed
 *         waits until `inside` is 0            sends
 *         takes what was sent off the queue    stackd_exec_gate_leave()
 *       execve(), and if that fails
 *       stackd_exec_gate_open()
 *
 * SIGNAL-SAFE, since exec is.
 */
#ifndef STACKD_EXEC_GATE_H_
#define STACKD_EXEC_GATE_H_

#include <stdbool.h>

/* In the child of a fork. */
void stackd_exec_gate_reset_after_fork(void);

/* False: nothing to open again (a vfork child, which shares our memory but gets no dump signals). */
bool stackd_exec_gate_close(int dump_signal);
void stackd_exec_gate_open(void);

/* Helper thread only. False: a thread is in exec; try again later. */
bool stackd_exec_gate_enter(void);
void stackd_exec_gate_leave(void);

#endif /* STACKD_EXEC_GATE_H_ */
