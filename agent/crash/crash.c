#include "agent/crash/crash.h"

#include <ucontext.h>

#include "agent/crash/crash_hold.h"
#include "agent/crash/crash_link.h"
#include "agent/crash/fault_lifecycle.h"
#include "agent/crash/record_once.h"
#include "agent/signals/sigchain.h"
#include "agent/sys/kernel.h"
#include "agent/sys/process_id.h"

#define SYSCALL_BYTES 2

void stackd_crash_init(uint64_t hold_ns, const struct stackd_own_fd* maps, const struct stackd_own_fd* spare) {
  stackd_crash_hold_init(hold_ns);
  stackd_record_once_init(maps, spare);
}

void stackd_crash_reset_after_fork(void) {
  stackd_crash_link_reset_after_fork();
  stackd_record_once_reset_after_fork();
  stackd_fault_lifecycle_reset_after_fork();
}

/* Ends the process of `signal_number`, when the handler that was given `context` returns. */
STACKD_HANDLER static void die(int signal_number, siginfo_t* info, void* context) {
  stackd_chain_end(signal_number, info, context);
  if (stackd_kept_pid() != 1) return;
  /* For the first process of a PID namespace the queued signal is dropped. A fault is met again; a refused system call is,
   * if it is made again; a breakpoint is not. */
  if (signal_number == SIGSYS) ((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP] -= SYSCALL_BYTES;
  if (signal_number == SIGTRAP) {
    stackd_set_signal_mask(STACKD_CRASH_MASK);
    __asm__ volatile("int3");
  }
}

/* The process dies of what it was to die of. */
STACKD_HANDLER static void die_after_own_fault(const struct stackd_fault* fault) {
  int end_signal;
  siginfo_t* end_info;
  bool by_signal = stackd_record_after_own_fault(&end_signal, &end_info);
  die(by_signal ? end_signal : fault->signal_number, by_signal ? end_info : fault->info, fault->context);
}

STACKD_HANDLER static void die_after_record(const struct stackd_fault* fault) {
  stackd_fault_record_origin(fault);
  die(fault->signal_number, fault->info, fault->context);
}

/* To the first process of a PID namespace the kernel sends no signal that it has no handler for. abort() goes on there, and
 * ends the process by an instruction that it may not use: from glibc 2.41 on with that fault blocked. */
STACKD_HANDLER static void record_abort_of_first_process(const struct stackd_fault* fault) {
  if (!stackd_fault_is_in_abort(fault)) return;
  stackd_fault_record_origin(fault);
}

STACKD_DEFINE_FRAME_ENTER(stackd_enter_handler, stackd_run_handler);

/* si_code of a call that a filter has refused, or that the program has asked for to do itself (linux/signal.h). */
#define SYS_SECCOMP_CODE 1
#define SYS_USER_DISPATCH_CODE 2

/* The broker of a sandbox lives on refused calls, and gives the answers. Ours might be refused as well, and asked for where
 * the program makes none: none is made, and nothing is recorded. The kernel has the program's mask and flags for this
 * signal (stackd_take_action). */
STACKD_HANDLER static bool leave_to_broker(int signal_number, siginfo_t* info, void* context) {
  if (signal_number != SIGSYS) return false;
  bool refused = info->si_code == SYS_SECCOMP_CODE || info->si_code == SYS_USER_DISPATCH_CODE;
  struct stackd_action action = stackd_chain_peek(signal_number);
  if (refused && stackd_chain_is_handled(&action)) {
    stackd_chain_run(&action, signal_number, info, context);
    return true;
  }
  /* As for the other signals. */
  stackd_set_signal_mask(~0ull);
  return false;
}

/* Calls the program's handler. False if there is no room to run it. `ours`: this is the process of the agent. */
STACKD_HANDLER static bool hand_over(const struct stackd_fault* fault, const struct stackd_action* action, bool ours) {
  struct stackd_signal_frame frame;
  stackd_signal_frame_place(&frame, (action->flags & SA_ONSTACK) != 0, fault->context);
  if (!stackd_signal_frame_fits(&frame)) return false;
  struct stackd_handler_call call = {*action, ours ? stackd_fault_remember(fault, &frame) : NULL};
  stackd_enter_handler(&frame, fault->signal_number, &call);
  return true;
}

void stackd_on_crash_signal(int signal_number, siginfo_t* info, void* context) {
  if (leave_to_broker(signal_number, info, context)) return;
  struct stackd_fault fault = {signal_number, 0, info, context};
  if (stackd_record_is_own_fault()) {
    die_after_own_fault(&fault);
    return;
  }
  struct stackd_action action = stackd_chain_deliver(signal_number);
  if (action.handler == STACKD_ACTION_IGNORE) {
    /* Set just now, in another thread. */
    if (!stackd_is_sent(info)) die(signal_number, info, context);
    return;
  }
  /* A child of vfork() shares this memory, and nothing else with us. */
  bool ours = !stackd_is_other_process();
  bool is_default = action.handler == STACKD_ACTION_DEFAULT;
  /* TENTATIVE */
  if (!is_default && hand_over(&fault, &action, ours)) return;
  /* FINAL */
  if (!ours) {
    die(signal_number, info, context);
  } else if (stackd_kept_pid() == 1 && stackd_is_sent(info) && is_default) {
    record_abort_of_first_process(&fault);
  } else {
    die_after_record(&fault);
  }
}
