#include "agent/dump/dump_handler.h"

#include <stdatomic.h>
#include <stddef.h>
#include <ucontext.h>

#include "agent/capture/capture.h"
#include "agent/capture/context.h"
#include "agent/capture/interrupted_syscall.h"
#include "agent/dump/thread_table.h"
#include "agent/signals/dump_signal.h"
#include "agent/signals/repeat_call.h"
#include "agent/signals/sigchain.h"
#include "agent/sys/fork_reset.h"

static const struct stackd_ring* _Atomic current_ring;

void stackd_handler_set_ring(const struct stackd_ring* ring) { atomic_store(&current_ring, ring); }

void stackd_handler_reset_after_fork(void) {
  STACKD_RESET(current_ring, NULL);
  stackd_handlers_reset_after_fork();
}

__attribute__((noinline)) STACKD_HANDLER static int capture_interrupted(const struct stackd_ring* ring, uint32_t seq,
                                                                        uint32_t max_stack_bytes, uint32_t tid,
                                                                        const ucontext_t* context) {
  struct stackd_capture capture;
  capture.begin_ns = stackd_clock_ns(CLOCK_MONOTONIC);
  capture.ring = ring;
  capture.ranges = stackd_code_ranges_current();
  capture.filter = stackd_filter_choose();
  capture.seq = seq;
  capture.tid = tid;
  capture.pid = stackd_getpid();
  capture.flags = 0;
  capture.max_stack_bytes = max_stack_bytes;
  capture.thread_self = stackd_fs_base();
  capture.cpu_ns = stackd_clock_ns(CLOCK_THREAD_CPUTIME_ID);
  stackd_thread_name(capture.name);
  stackd_copy_registers(context, capture.regs);
  stackd_interrupted_call(context, &capture.call);
  capture.crash_slots = 0;
  capture.by_kernel_only = false;
  capture.stack = (struct stackd_interval){0, 0};
  capture.alternate = stackd_alternate_stack(context);
  return stackd_capture_write(&capture);
}

/* Not where the program's handler of refused calls runs, or is kept out: one of ours that is refused would kill there. */
STACKD_HANDLER static bool may_make_calls(const ucontext_t* context) {
  uint64_t blocked = *(const uint64_t*)&context->uc_sigmask;
  if ((blocked >> (SIGSYS - 1) & 1) == 0) return true;
  struct stackd_action action = stackd_chain_peek(SIGSYS);
  return !stackd_chain_is_handled(&action);
}

STACKD_HANDLER static void answer(uint32_t index, uint32_t seq, const ucontext_t* context) {
  const struct stackd_ring* ring = atomic_load(&current_ring);
  if (ring == NULL) return;
  if (!may_make_calls(context)) {
    stackd_ring_count_drop(ring, STACKD_DROP_AGENT_FAULT);
    stackd_thread_refuse(index, seq);
    return;
  }
  uint32_t tid = (uint32_t)stackd_gettid();
  struct stackd_thread_entry* entry = stackd_thread_claim(index, seq, tid);
  if (entry == NULL) {
    stackd_ring_count_drop(ring, STACKD_DROP_LATE);
    return;
  }
  if (!stackd_has_room(context, STACKD_CAPTURE_STACK_BYTES)) {
    stackd_ring_count_drop(ring, STACKD_DROP_AGENT_FAULT);
    stackd_thread_answer(entry, seq, STACKD_THREAD_FAULT);
    return;
  }
  int error = capture_interrupted(ring, seq, entry->max_stack_bytes, tid, context);
  stackd_thread_answer(entry, seq, error == 0 ? STACKD_THREAD_DONE : STACKD_THREAD_NO_SLOT);
}

STACKD_HANDLER static void repeat_call(ucontext_t* context) {
  bool is_ended = context->uc_mcontext.gregs[REG_RAX] == -EINTR;
  if (is_ended && may_make_calls(context) && stackd_has_room(context, STACKD_CAPTURE_STACK_BYTES))
    stackd_repeat_call(context);
}

void stackd_pass_on(int signal_number, siginfo_t* info, void* context, const struct stackd_handler_call* call) {
  stackd_chain_call(&call->action, signal_number, info, context);
}

STACKD_DEFINE_FRAME_ENTER(stackd_enter_passed, stackd_pass_on);

__attribute__((noinline)) void stackd_leave_to_program(int signal_number, siginfo_t* info, void* context) {
  struct stackd_handler_call call = {stackd_chain_deliver(signal_number), NULL};
  if (call.action.handler == STACKD_ACTION_IGNORE) return;
  if (call.action.handler == STACKD_ACTION_DEFAULT) {
    stackd_chain_end(signal_number, info, context);
    return;
  }
  struct stackd_signal_frame frame;
  stackd_signal_frame_place(&frame, (call.action.flags & SA_ONSTACK) != 0, context);
  if (stackd_signal_frame_fits(&frame)) {
    stackd_enter_passed(&frame, signal_number, &call);
  } else {
    stackd_pass_on(signal_number, info, context, &call);
  }
}

void stackd_on_dump_signal(int signal_number, siginfo_t* info, void* context) {
  if (!stackd_is_dump_signal(info)) {
    stackd_leave_to_program(signal_number, info, context);
    return;
  }
  /* errno is untouched: no call here goes through the C library. */
  uint64_t question = (uint64_t)info->si_value.sival_ptr;
  stackd_handler_enter();
  answer((uint32_t)question, (uint32_t)(question >> 32), context);
  repeat_call(context);
  stackd_handler_leave();
}
