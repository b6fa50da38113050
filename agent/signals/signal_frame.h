/* Puts a signal's frame where the kernel would have put it, had the program's handler been the one that it knows.
 *
 * Our handler has SA_ONSTACK and every thread has an alternate stack, so the kernel puts the frame there. A program's
 * handler without SA_ONSTACK was written for the thread's own stack: it may need more than an alternate stack has, look at
 * where it runs, or scan the stack from its own frame up. And it may stay for ever, or jump out, while the next signal on
 * the alternate stack begins at its top again and overwrites the frame that was left there.
 */
#ifndef STACKD_SIGNAL_FRAME_H_
#define STACKD_SIGNAL_FRAME_H_

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/signals/sigchain.h"
#include "agent/sys/syscalls.h"

/* What `context`, as the kernel gave it to our handler, has below it and above it. */
struct stackd_signal_frame {
  uint64_t address;    /* of the return address, where the frame starts */
  uint64_t fp_address; /* of the floating-point state, 0 if there is none */
  uint64_t fp_bytes;
  uint64_t new_address; /* where the frame belongs; `address` if it is there */
  uint64_t new_fp_address;
  uint64_t alternate_low;
  uint64_t alternate_bytes;
};

/* Where the frame belongs for a handler with or without SA_ONSTACK. */
void stackd_signal_frame_place(struct stackd_signal_frame* frame, bool on_stack, const void* context) STACKD_HANDLER;

/* Whether there is memory: where not, the kernel would have ended the program. */
bool stackd_signal_frame_fits(const struct stackd_signal_frame* frame) STACKD_HANDLER;

/* What is to be done there. */
struct stackd_handler_call {
  struct stackd_action action;
  struct stackd_active_fault* active; /* NULL: there is none, or there was no room to remember it */
};

/* Has stackd_run_handler() (crash.h) called with `call`, on the stack where the frame belongs. Returns if the frame is
 * there already; otherwise moves it, and nothing is left of the caller, which must have nothing to do any more. */
void stackd_signal_frame_enter(const struct stackd_signal_frame* frame, int signal_number,
                               const struct stackd_handler_call* call) STACKD_HANDLER;

/* The same with stackd_pass_on() (dump_handler.c), for a signal that is none of our business. */
void stackd_signal_frame_enter_passed(const struct stackd_signal_frame* frame, int signal_number,
                                      const struct stackd_handler_call* call) STACKD_HANDLER;

/* The arguments that the handler gets there. */
siginfo_t* stackd_signal_frame_info(const struct stackd_signal_frame* frame) STACKD_HANDLER;
void* stackd_signal_frame_context(const struct stackd_signal_frame* frame) STACKD_HANDLER;

/* What tells a frame from whatever is written where it was: its return address, and pointers and a head that no handler
 * writes to. */
#define STACKD_SIGNAL_FRAME_MARKS 4
void stackd_signal_frame_marks(const struct stackd_signal_frame* frame,
                               uint64_t marks[STACKD_SIGNAL_FRAME_MARKS]) STACKD_HANDLER;
/* Whether they are still in memory at `address`. */
bool stackd_signal_frame_is_marked(uint64_t address, const uint64_t marks[STACKD_SIGNAL_FRAME_MARKS]) STACKD_HANDLER;

#endif /* STACKD_SIGNAL_FRAME_H_ */
