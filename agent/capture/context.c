#include "agent/capture/context.h"

#include <errno.h>
#include <ucontext.h>

#include "agent/capture/capture.h"
#include "agent/sys/fork_reset.h"

static uint32_t handlers_running;

int stackd_handler_quiesce(uint64_t timeout_ns) {
  uint64_t give_up_ns = stackd_clock_ns(CLOCK_MONOTONIC) + timeout_ns;
  while (__atomic_load_n(&handlers_running, __ATOMIC_SEQ_CST) != 0) {
    if (stackd_clock_ns(CLOCK_MONOTONIC) > give_up_ns) return 0;
    struct timespec pause = {0, 100000};
    stackd_syscall6(SYS_nanosleep, (long)&pause, 0, 0, 0, 0, 0);
  }
  return 1;
}

void stackd_handlers_reset_after_fork(void) { STACKD_RESET(handlers_running, 0); }

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
