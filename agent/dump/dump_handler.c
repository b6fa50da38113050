#include "agent/dump/dump_handler.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <ucontext.h>

#include "agent/capture/capture.h"
#include "agent/capture/interrupted_syscall.h"
#include "agent/signals/sigchain.h"

static stackd_filter_fn* filter_in_use;
static int signal_in_use;
static const struct stackd_ring* _Atomic current_ring;
static uint32_t handlers_running;

void stackd_handler_init(stackd_filter_fn* filter, int dump_signal) {
  filter_in_use = filter;
  signal_in_use = dump_signal;
}

int stackd_handler_signal(void) { return signal_in_use; }

void stackd_handler_set_ring(const struct stackd_ring* ring) { atomic_store(&current_ring, ring); }

int stackd_handler_quiesce(uint64_t timeout_ns) {
  uint64_t give_up_ns = stackd_clock_ns(CLOCK_MONOTONIC) + timeout_ns;
  while (__atomic_load_n(&handlers_running, __ATOMIC_SEQ_CST) != 0) {
    if (stackd_clock_ns(CLOCK_MONOTONIC) > give_up_ns) return 0;
    struct timespec pause = {0, 100000};
    stackd_syscall6(SYS_nanosleep, (long)&pause, 0, 0, 0, 0, 0);
  }
  return 1;
}

void stackd_handler_reset_after_fork(void) {
  atomic_store(&current_ring, NULL);
  __atomic_store_n(&handlers_running, 0, __ATOMIC_SEQ_CST);
}

void stackd_handler_enter(void) { __atomic_fetch_add(&handlers_running, 1, __ATOMIC_SEQ_CST); }

void stackd_handler_leave(void) { __atomic_fetch_sub(&handlers_running, 1, __ATOMIC_SEQ_CST); }

void stackd_copy_registers(const void* ucontext, uint64_t regs[STACKD_REGISTERS]) {
  const ucontext_t* context = ucontext;
  const greg_t* from = context->uc_mcontext.gregs;
  regs[0] = (uint64_t)from[REG_RAX];
  regs[1] = (uint64_t)from[REG_RDX];
  regs[2] = (uint64_t)from[REG_RCX];
  regs[3] = (uint64_t)from[REG_RBX];
  regs[4] = (uint64_t)from[REG_RSI];
  regs[5] = (uint64_t)from[REG_RDI];
  regs[STACKD_REG_RBP] = (uint64_t)from[REG_RBP];
  regs[STACKD_REG_RSP] = (uint64_t)from[REG_RSP];
  regs[8] = (uint64_t)from[REG_R8];
  regs[9] = (uint64_t)from[REG_R9];
  regs[10] = (uint64_t)from[REG_R10];
  regs[11] = (uint64_t)from[REG_R11];
  regs[12] = (uint64_t)from[REG_R12];
  regs[13] = (uint64_t)from[REG_R13];
  regs[14] = (uint64_t)from[REG_R14];
  regs[15] = (uint64_t)from[REG_R15];
  regs[STACKD_REG_RIP] = (uint64_t)from[REG_RIP];
}

struct stackd_interval stackd_alternate_stack(const void* ucontext) {
  const ucontext_t* context = ucontext;
  uint64_t low = (uint64_t)context->uc_stack.ss_sp;
  return (struct stackd_interval){low, low + context->uc_stack.ss_size};
}

/* It may be an alternate stack that the program sized for a handler of
 * its own, or nearly used up, with a guard page below. */
int stackd_has_room(const void* ucontext, uint64_t bytes) {
  const ucontext_t* context = ucontext;
  uint64_t here = (uint64_t)__builtin_frame_address(0);
  struct stackd_interval alternate = stackd_alternate_stack(context);
  if (here >= alternate.start && here < alternate.end) return here - alternate.start >= bytes;
  uint64_t word;
  long got = stackd_read_memory(stackd_getpid(), here - bytes, &word, sizeof(word));
  if (got == sizeof(word)) return 1;
  const struct stackd_code_ranges* ranges = stackd_code_ranges_current();
  if (ranges == NULL) return got != -EFAULT;
  /* The main stack grows into what is not mapped yet. */
  if (here < ranges->main_stack.end && here >= ranges->main_stack.start - STACKD_MAIN_STACK_GROWTH_BYTES) return 1;
  if (got == -EFAULT) return 0;
  struct stackd_interval mapping = stackd_writable_mapping(ranges, here);
  return mapping.end == 0 || here - mapping.start >= bytes;
}

__attribute__((noinline)) STACKD_HANDLER static int capture_interrupted(const struct stackd_ring* ring, uint32_t seq,
                                                                        uint32_t max_stack_bytes, uint32_t tid,
                                                                        const ucontext_t* context) {
  struct stackd_capture capture;
  capture.begin_ns = stackd_clock_ns(CLOCK_MONOTONIC);
  capture.ring = ring;
  capture.ranges = stackd_code_ranges_current();
  capture.filter = filter_in_use;
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

STACKD_HANDLER static void answer(uint32_t index, uint32_t seq, const ucontext_t* context) {
  const struct stackd_ring* ring = atomic_load(&current_ring);
  if (ring == NULL) return;
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

void stackd_pass_on(int signal_number, siginfo_t* info, void* context, const struct stackd_handler_call* call) {
  stackd_chain_call(&call->action, signal_number, info, context);
}

STACKD_DEFINE_FRAME_ENTER(stackd_enter_passed, stackd_pass_on);

/* Somebody else sent it: what would have happened without us happens. */
__attribute__((noinline)) STACKD_HANDLER static void leave_to_program(int signal_number, siginfo_t* info, void* context) {
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

bool stackd_is_dump_signal(const siginfo_t* info) {
  return info->si_code == STACKD_SI_CODE && info->si_pid == stackd_getpid();
}

void stackd_on_dump_signal(int signal_number, siginfo_t* info, void* context) {
  if (!stackd_is_dump_signal(info)) {
    leave_to_program(signal_number, info, context);
    return;
  }
  /* errno is untouched: no call here goes through the C library. */
  uint64_t question = (uint64_t)info->si_value.sival_ptr;
  stackd_handler_enter();
  answer((uint32_t)question, (uint32_t)(question >> 32), context);
  stackd_handler_leave();
}

int stackd_send_dump_signal(int signal_number, int32_t pid, uint32_t tid, uint32_t index, uint32_t seq) {
  siginfo_t info = {0};
  info.si_signo = signal_number;
  info.si_code = STACKD_SI_CODE;
  info.si_pid = pid;
  info.si_value.sival_ptr = (void*)((uint64_t)seq << 32 | index);
  return (int)stackd_syscall6(SYS_rt_tgsigqueueinfo, pid, (long)tid, signal_number, (long)&info, 0, 0);
}
