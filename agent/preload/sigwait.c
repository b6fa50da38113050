/* sigwait() and its relatives. A thread that waits for all signals takes ours off the queue, although it blocks it. procfs
 * shows the signals waited for as not blocked meanwhile. The program must not see it; the thread answers here. */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

#include "agent/dump/dump_handler.h"
#include "agent/helper/life.h"
#include "agent/install/install.h"
#include "agent/preload/preload.h"
#include "agent/signals/dump_signal.h"
#include "agent/signals/sigterm.h"
#include "agent/signals/wake_signal.h"

#define NS_PER_S 1000000000ll

typedef int sigtimedwait_fn(const sigset_t*, siginfo_t*, const struct timespec*);

static sigtimedwait_fn* real_sigtimedwait;

void stackd_preload_find_sigwait(void) { STACKD_BEHIND(real_sigtimedwait, "sigtimedwait"); }

static int64_t now_ns(void) { return (int64_t)stackd_clock_ns(CLOCK_MONOTONIC); }

/* Reads the registers that an unwinder needs, as they are at one instruction of the caller. (getcontext() is not in every C
 * library.) */
__attribute__((always_inline)) static inline void read_registers(greg_t* gregs) {
  __asm__ volatile(
      "mov %%r12, 4*8(%0)\n\t"
      "mov %%r13, 5*8(%0)\n\t"
      "mov %%r14, 6*8(%0)\n\t"
      "mov %%r15, 7*8(%0)\n\t"
      "mov %%rbp, 10*8(%0)\n\t"
      "mov %%rbx, 11*8(%0)\n\t"
      "mov %%rsp, 15*8(%0)\n\t"
      "lea 0(%%rip), %%rax\n\t"
      "mov %%rax, 16*8(%0)"
      :
      : "r"(gregs)
      : "rax", "memory");
}

/* True if that was ours; then it is answered. */
static bool answered(int signal_number, siginfo_t* info) {
  if (signal_number <= 0 || signal_number != stackd_taken_signal() || !stackd_is_dump_signal(info)) return false;
  ucontext_t context;
  memset(&context, 0, sizeof(context)); /* no alternate stack */
  read_registers(context.uc_mcontext.gregs);
  /* As in the handler: nothing may take this thread away in the middle of its record. */
  uint64_t all = ~0ull;
  uint64_t before;
  stackd_syscall6(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&before, sizeof(all), 0, 0);
  stackd_on_dump_signal(signal_number, info, &context);
  stackd_syscall6(SYS_rt_sigprocmask, SIG_SETMASK, (long)&before, 0, sizeof(before), 0, 0);
  return true;
}

STACKD_EXPORT int sigtimedwait(const sigset_t* restrict set, siginfo_t* restrict info,
                               const struct timespec* restrict timeout) {
  siginfo_t own;
  if (info == NULL) info = &own;
  int64_t end_ns = timeout != NULL ? now_ns() + timeout->tv_sec * NS_PER_S + timeout->tv_nsec : 0;
  struct timespec left;
  const struct timespec* wait = timeout;
  for (;;) {
    int signal_number = STACKD_BEHIND(real_sigtimedwait, "sigtimedwait")(set, info, wait);
    if (signal_number == SIGTERM) stackd_sigterm_add();
    if (signal_number == stackd_wake_signal() && stackd_is_wake_signal(info)) {
      stackd_helper_start();
    } else if (!answered(signal_number, info)) {
      return signal_number;
    }
    if (timeout == NULL) continue;
    int64_t left_ns = end_ns - now_ns();
    if (left_ns < 0) left_ns = 0;
    left = (struct timespec){(time_t)(left_ns / NS_PER_S), (long)(left_ns % NS_PER_S)};
    wait = &left;
  }
}

STACKD_EXPORT int sigwaitinfo(const sigset_t* restrict set, siginfo_t* restrict info) {
  return sigtimedwait(set, info, NULL);
}

STACKD_EXPORT int sigwait(const sigset_t* restrict set, int* restrict signal_number) {
  for (;;) {
    int got = sigtimedwait(set, NULL, NULL);
    if (got >= 0) {
      *signal_number = got;
      return 0;
    }
    if (errno != EINTR) return errno;
  }
}
