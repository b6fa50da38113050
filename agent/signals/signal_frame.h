/* Puts a signal's frame where the kernel would have put it, had the program's handler been the one that it knows.
 *
 * Our handler has SA_ONSTACK and every thread has an alternate stack, so the kernel puts the frame there. A program's
 * handler without SA_ONSTACK was written for the thread's own stack. It may need more than an alternate stack has, look at
 * where it runs, or scan the stack from its own frame up. And it may stay for ever, or jump out. The next signal on the
 * alternate stack would begin at its top again, and overwrite the frame that was left there.
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

/* Below the frame: a copy of the call, at such a distance that the stack is aligned there. */
#define STACKD_BELOW_FRAME_BYTES 56

/* Copies the frame to where it belongs, and `call` below it. */
void stackd_signal_frame_move(const struct stackd_signal_frame* frame,
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

/* Defines `name`(frame, signal number, call), which has `run`(signal number, info, context, call) called on the stack where
 * the frame belongs. It returns if the frame is there already. Otherwise it moves the frame, and nothing is left of the
 * caller, which must have nothing to do any more. The stack then looks as if the kernel had called `name`_switch, so that
 * unwinders find their way. One for each `run`, not one with a pointer: what a handler can reach is to be seen in its code.
 * `run` is called by its name from assembly. */
#define STACKD_DEFINE_FRAME_ENTER(name, run)                                                                             \
  __attribute__((visibility("hidden"), noreturn)) void name##_switch(uint64_t frame, int signal_number, siginfo_t* info, \
                                                                     void* context);                                     \
  __asm__(                                                                                                               \
      ".pushsection .text.stackd_handler, \"ax\", @progbits\n"                                                           \
      ".globl " #name                                                                                                    \
      "_switch\n"                                                                                                        \
      ".hidden " #name                                                                                                   \
      "_switch\n"                                                                                                        \
      ".type " #name "_switch, @function\n" #name                                                                        \
      "_switch:\n"                                                                                                       \
      ".cfi_startproc\n"                                                                                                 \
      "  leaq -56(%rdi), %rsp\n"                                                                                         \
      ".cfi_def_cfa_offset 64\n"                                                                                         \
      "  movl %esi, %edi\n"                                                                                              \
      "  movq %rdx, %rsi\n"                                                                                              \
      "  movq %rcx, %rdx\n"                                                                                              \
      "  movq %rsp, %rcx\n"                                                                                              \
      "  call " #run                                                                                                     \
      "\n"                                                                                                               \
      "  addq $56, %rsp\n"                                                                                               \
      ".cfi_def_cfa_offset 8\n"                                                                                          \
      "  ret\n"                                                                                                          \
      ".cfi_endproc\n"                                                                                                   \
      ".size " #name "_switch, .-" #name                                                                                 \
      "_switch\n"                                                                                                        \
      ".popsection\n");                                                                                                  \
  STACKD_HANDLER static void name(const struct stackd_signal_frame* frame, int signal_number,                            \
                                  const struct stackd_handler_call* call) {                                              \
    siginfo_t* info = stackd_signal_frame_info(frame);                                                                   \
    void* context = stackd_signal_frame_context(frame);                                                                  \
    if (frame->new_address == frame->address) {                                                                          \
      run(signal_number, info, context, call);                                                                           \
      return;                                                                                                            \
    }                                                                                                                    \
    stackd_signal_frame_move(frame, call);                                                                               \
    name##_switch(frame->new_address, signal_number, info, context);                                                     \
  }                                                                                                                      \
  _Static_assert(1, "a semicolon behind the macro")

#endif /* STACKD_SIGNAL_FRAME_H_ */
