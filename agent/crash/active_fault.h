/* Faults that a handler of the program is dealing with. It may recover, and then nothing happened. It may also give the
 * signal its default action and raise it again, call abort() or exit(). Then the fault that it was called for is to be
 * recorded. Only the arguments of its call still show that fault.
 *
 *     FREE --(crash handler, before it calls the program's)--> CLAIMED --> ACTIVE --(it returned)--> FREE
 *                                                                           |
 *                                       (it returned, and the signal has its default action now)
 *                                                                           v
 *                                                                        RETURNED --(next fault of the thread)--> FREE
 *
 * A handler may also be left by longjmp() or an exception, and the agent is not told. So an ACTIVE entry counts only as
 * long as the thread is inside that handler. Then its stack pointer lies below the signal's frame, on the same stack. On
 * the thread's own stack it may lie there again long after, so there the frame must also be whole.
 *
 * No entry of a table that is full: the fault is then seen as a new one each time. HANDLER ONLY.
 */
#ifndef STACKD_ACTIVE_FAULT_H_
#define STACKD_ACTIVE_FAULT_H_

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/signals/signal_frame.h"
#include "agent/sys/syscalls.h"

struct stackd_active_fault {
  uint32_t state; /* private */
  uint32_t tid;
  uint64_t order; /* of outer and inner */
  uint64_t frame; /* the handler's stack: from here down to `low` */
  uint64_t low;
  bool on_alternate;
  uint64_t marks[STACKD_SIGNAL_FRAME_MARKS];
  int32_t signal_number;
  siginfo_t* info;
  void* context;
  /* Id and place of the record in the ring that counts if the process ends now (stackd_ring_header.tentative). 0: none. */
  uint64_t record_id;
  uint32_t record_slot;
  uint32_t record_place;
  /* RETURNED: the arguments are gone. */
  siginfo_t kept_info;
  uint64_t kept_rip;
  uint64_t kept_rsp;
};

/* The calling thread `tid` is about to call the program's handler, on `frame`. NULL if there is no room. */
struct stackd_active_fault* stackd_active_fault_enter(uint32_t tid, int signal_number,
                                                      const struct stackd_signal_frame* frame) STACKD_HANDLER;

/* Ends the entry of a handler that returned. With `keep` it becomes RETURNED, else FREE. */
void stackd_active_fault_leave(struct stackd_active_fault* fault, bool keep) STACKD_HANDLER;

/* The outermost fault whose handler the thread is inside of, with its stack pointer at `rsp`; NULL if it is in none. */
struct stackd_active_fault* stackd_active_fault_around(uint32_t tid, uint64_t rsp) STACKD_HANDLER;

/* Whether there may be such a one, of whatever thread: without a system call. */
bool stackd_active_fault_may_be_around(uint64_t rsp) STACKD_HANDLER;

/* A fault of the thread whose handler returned to where `context` is, if that is the last thing it did; else NULL. */
struct stackd_active_fault* stackd_active_fault_returned(uint32_t tid, int signal_number,
                                                         const void* context) STACKD_HANDLER;

/* The next one, after `index`, that is over without having been left: its thread was inside no longer when it faulted
 * again. Its caller withdraws the record and frees it with stackd_active_fault_leave(). */
struct stackd_active_fault* stackd_active_fault_stale(uint32_t tid, uint64_t rsp, uint32_t* index) STACKD_HANDLER;

/* In the child of a fork. */
void stackd_active_fault_reset_after_fork(void);

#endif /* STACKD_ACTIVE_FAULT_H_ */
