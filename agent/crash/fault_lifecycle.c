#include "agent/crash/fault_lifecycle.h"

#include <ucontext.h>

#include "agent/capture/context.h"
#include "agent/crash/active_fault.h"
#include "agent/crash/crash.h"
#include "agent/crash/crash_link.h"
#include "agent/crash/record_once.h"
#include "agent/crash/tentative.h"
#include "agent/maps/code_ranges.h"
#include "agent/signals/sigchain.h"
#include "agent/sys/fork_reset.h"
#include "agent/sys/kernel.h"
#include "agent/sys/process_id.h"

/* For the record of a fault that the program may recover from. */
#define HELPER_START_NS 50000000ull
/* Between a signal that abort() raises and its frame lie those of raise() and what that calls. */
#define ABORT_WORDS 64
#define ABORT_CODE_BYTES 512

static uint64_t abort_code;    /* where abort() begins; 0: unknown */
static uint32_t has_met_fault; /* that the program's handler was called for */

void stackd_crash_set_abort(uint64_t code) { abort_code = code; }

STACKD_HANDLER static uint64_t rsp_of(const void* context) {
  return (uint64_t)((const ucontext_t*)context)->uc_mcontext.gregs[REG_RSP];
}

STACKD_HANDLER static uint64_t rip_of(const void* context) {
  return (uint64_t)((const ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
}

/* Finds the fault that a handler of the program was called for, if that is why the process ends now. `present` is the
 * signal that ends it, NULL for an exit. False if there is none. */
STACKD_HANDLER static bool original_fault(uint32_t tid, uint64_t rsp, const struct stackd_fault* present,
                                          struct stackd_fault* original) {
  struct stackd_active_fault* active = stackd_active_fault_around(tid, rsp);
  if (active != NULL) {
    *original = (struct stackd_fault){active->signal_number, STACKD_CRASH_HANDLED, active->info, active->context};
    return true;
  }
  /* "signal(n, SIG_DFL); raise(n);" in a handler: raised when that returned, where the fault was. */
  if (present == NULL || !stackd_is_sent(present->info) || present->info->si_pid != stackd_kept_pid()) return false;
  active = stackd_active_fault_returned(tid, present->signal_number, present->context);
  if (active == NULL) return false;
  *original = (struct stackd_fault){active->signal_number, STACKD_CRASH_HANDLED, &active->kept_info, present->context};
  return true;
}

void stackd_fault_record_origin(const struct stackd_fault* fault) {
  struct stackd_fault original;
  bool handled = original_fault((uint32_t)stackd_gettid(), rsp_of(fault->context), fault, &original);
  stackd_record_once(handled ? &original : fault, fault->signal_number, fault->info);
}

/* --- The end of the process, and jumps --- */

/* Whether the end of the process, by a thread at `rsp`, may concern a fault. */
STACKD_HANDLER static bool has_something_to_say(uint64_t rsp) {
  return stackd_record_has_begun() || stackd_tentative_is_any() || stackd_active_fault_may_be_around(rsp);
}

STACKD_HANDLER static uint64_t signal_mask(void) {
  uint64_t mask = 0;
  stackd_syscall6(SYS_rt_sigprocmask, SIG_SETMASK, 0, (long)&mask, sizeof(mask), 0, 0);
  return mask;
}

void stackd_crash_before_end(void) {
  /* A filter of the program's may allow it to end, and next to nothing else. */
  uint64_t here = (uint64_t)__builtin_frame_address(0);
  if (!has_something_to_say(here) || stackd_is_other_process()) return;
  if (stackd_record_is_dying_elsewhere()) {
    uint64_t before = signal_mask();
    stackd_record_await_death();
    stackd_set_signal_mask(before);
    return;
  }
  struct stackd_fault original;
  const struct stackd_crash_link* link = stackd_crash_link_acquire();
  if (original_fault((uint32_t)stackd_gettid(), here, NULL, &original)) {
    uint64_t before = signal_mask();
    stackd_record_once(&original, 0, NULL);
    stackd_set_signal_mask(before);
  } else if (link != NULL && !stackd_record_has_begun()) {
    stackd_tentative_withdraw_all(link->ring);
  }
  stackd_crash_link_release();
}

void stackd_crash_before_jump(void) {
  if (!stackd_tentative_is_any() || stackd_is_other_process()) return;
  uint32_t tid = (uint32_t)stackd_gettid();
  const struct stackd_crash_link* link = stackd_crash_link_acquire();
  /* The record alone: a handler may also jump about in itself, and die after that. */
  uint32_t index = 0;
  struct stackd_active_fault* active;
  while (link != NULL && (active = stackd_active_fault_stale(tid, ~0ull, &index)) != NULL) {
    stackd_tentative_withdraw(link->ring, active);
  }
  stackd_crash_link_release();
}

/* --- The program's handler --- */

STACKD_HANDLER static bool raised_itself(int signal_number, const siginfo_t* info) {
  return signal_number == SIGABRT && info->si_code == SI_TKILL && info->si_pid == stackd_kept_pid();
}

bool stackd_fault_is_in_abort(const struct stackd_fault* fault) {
  if (abort_code == 0 || !raised_itself(fault->signal_number, fault->info)) return false;
  uint64_t words[ABORT_WORDS];
  long got = stackd_read_memory(stackd_kept_pid(), rsp_of(fault->context), words, sizeof(words));
  for (long i = 0; i < got / (long)sizeof(words[0]); i++) {
    if (words[i] - abort_code < ABORT_CODE_BYTES) return true;
  }
  return false;
}

/* Ends the entries of faults that are over without their handler having returned. */
STACKD_HANDLER static void leave_stale(const struct stackd_ring* ring, uint32_t tid, uint64_t rsp) {
  uint32_t index = 0;
  struct stackd_active_fault* stale;
  while ((stale = stackd_active_fault_stale(tid, rsp, &index)) != NULL) {
    if (ring != NULL) stackd_tentative_withdraw(ring, stale);
    stackd_active_fault_leave(stale, false);
  }
}

/* The handler has given the signal its default action, in a way that we do not see, and returned to the instruction that
 * faulted. It will fault again next, and then the kernel ends the process without calling us. */
STACKD_HANDLER static bool will_fault_again(const struct stackd_fault* fault, uint64_t rip) {
  return !stackd_is_sent(fault->info) && rip_of(fault->context) == rip && stackd_chain_is_cut(fault->signal_number);
}

/* `rip`: where the fault was. */
STACKD_HANDLER static void after_handler(const struct stackd_ring* ring, const struct stackd_fault* fault, uint64_t rip,
                                         struct stackd_active_fault* active) {
  if (stackd_fault_is_in_abort(fault) || will_fault_again(fault, rip)) {
    struct stackd_fault handled = *fault;
    handled.flags = STACKD_CRASH_HANDLED;
    stackd_record_once(&handled, fault->signal_number, fault->info);
  }
  /* If the signal ends the program next, the kernel does not call us. So the record stands until the program goes on for
   * long enough, or says that it ends otherwise. */
  if (ring != NULL && !stackd_chain_is_cut(fault->signal_number)) stackd_tentative_withdraw(ring, active);
  stackd_active_fault_leave(active, stackd_chain_is_default(fault->signal_number));
}

struct stackd_active_fault* stackd_fault_remember(const struct stackd_fault* fault,
                                                  const struct stackd_signal_frame* frame) {
  uint32_t tid = (uint32_t)stackd_gettid();
  /* Once: a daemon that is stopped does not answer the helper for as long as that lasts. */
  if (__atomic_exchange_n(&has_met_fault, 1, __ATOMIC_RELAXED) == 0) stackd_crash_await_helper(HELPER_START_NS);
  const struct stackd_crash_link* link = stackd_crash_link_acquire();
  leave_stale(link != NULL ? link->ring : NULL, tid, rsp_of(fault->context));
  struct stackd_active_fault* active = stackd_active_fault_enter(tid, fault->signal_number, frame);
  bool may_record = active != NULL && link != NULL && !stackd_record_has_begun() && stackd_code_ranges_current() != NULL &&
                    stackd_has_room(fault->context, STACKD_CRASH_STACK_BYTES);
  if (may_record) {
    stackd_tentative_write(link->ring, fault, active);
    if (active->record_id != 0) stackd_crash_have_modules_loaded(link);
  }
  stackd_crash_link_release();
  return active;
}

void stackd_run_handler(int signal_number, siginfo_t* info, void* context, const struct stackd_handler_call* call) {
  uint64_t rip = rip_of(context);
  stackd_chain_call(&call->action, signal_number, info, context);
  if (call->active == NULL) return;
  struct stackd_fault fault = {signal_number, 0, info, context};
  const struct stackd_crash_link* link = stackd_crash_link_acquire();
  after_handler(link != NULL ? link->ring : NULL, &fault, rip, call->active);
  stackd_crash_link_release();
}

void stackd_fault_lifecycle_reset_after_fork(void) {
  STACKD_RESET(has_met_fault, 0);
  stackd_active_fault_reset_after_fork();
}
