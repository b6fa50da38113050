#include "agent/signals/repeat_call.h"

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <ucontext.h>

#include "agent/capture/interrupted_syscall.h"
#include "agent/signals/dump_signal.h"
#include "agent/signals/sigchain.h"
#include "agent/signals/signal_frame.h"
#include "agent/signals/wake_signal.h"

#define CALL_BYTES 2 /* syscall */

/* musl's headers lack it. */
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

/* What the call does with its timeout. */
enum timeout {
  NOT_REPEATED,
  NONE,         /* it has none, or a point in time */
  COUNTS_DOWN,  /* the kernel has written what is left in its place */
  MILLISECONDS, /* an int; negative: for ever */
  TIMESPEC,     /* its address; 0: for ever */
  SLEEP,        /* the same, and behind it the address where the kernel has written what is left, or 0 */
  OF_RECEIVING, /* SO_RCVTIMEO of the socket */
  OF_SENDING,   /* SO_SNDTIMEO */
};

struct repeated {
  uint8_t timeout;
  uint8_t argument; /* which one the timeout is, or the socket */
};

static const struct repeated kRepeated[] = {
    [SYS_read] = {OF_RECEIVING, 0},
    [SYS_write] = {OF_SENDING, 0},
    [SYS_poll] = {MILLISECONDS, 2},
    [SYS_ppoll] = {COUNTS_DOWN, 2},
    [SYS_select] = {COUNTS_DOWN, 4},
    [SYS_pselect6] = {COUNTS_DOWN, 4},
    [SYS_epoll_wait] = {MILLISECONDS, 3},
    [SYS_epoll_pwait] = {MILLISECONDS, 3},
    [SYS_epoll_pwait2] = {TIMESPEC, 3},
    [SYS_nanosleep] = {SLEEP, 0},
    [SYS_clock_nanosleep] = {SLEEP, 2},
    [SYS_accept] = {OF_RECEIVING, 0},
    [SYS_accept4] = {OF_RECEIVING, 0},
    [SYS_recvfrom] = {OF_RECEIVING, 0},
    [SYS_recvmsg] = {OF_RECEIVING, 0},
    [SYS_sendto] = {OF_SENDING, 0},
    [SYS_sendmsg] = {OF_SENDING, 0},
    [SYS_pause] = {NONE, 0},
    [SYS_rt_sigsuspend] = {NONE, 0},
    [SYS_rt_sigtimedwait] = {TIMESPEC, 2},
    [SYS_semop] = {NONE, 0},
    [SYS_semtimedop] = {TIMESPEC, 3},
    [SYS_msgrcv] = {NONE, 0},
    [SYS_msgsnd] = {NONE, 0},
    [SYS_io_getevents] = {TIMESPEC, 4},
    [SYS_futex] = {TIMESPEC, 3},
};
#define REPEATED_NUMBERS (sizeof(kRepeated) / sizeof(kRepeated[0]))

static const uint8_t kRegisters[] = {REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9};

enum handlers {
  NONE_HANDLED,
  ON_OWN_STACK,
  ON_ALTERNATE_STACK, /* where ours overwrites what another has left */
};

/* On which stack a handler of the program's may run right before ours; an alternate stack counts first. */
static uint32_t handlers = ON_ALTERNATE_STACK;
static uint32_t anew_s; /* a timeout up to this begins anew */

STACKD_HANDLER static bool is_short(int64_t s, int64_t ns, uint32_t longest_s) {
  return s >= 0 && (s < longest_s || (s == longest_s && ns == 0));
}

STACKD_HANDLER static bool is_short_at(uint64_t address, uint32_t longest_s) {
  struct timespec timeout;
  if (address == 0) return true; /* for ever */
  return stackd_read_memory(stackd_getpid(), address, &timeout, sizeof(timeout)) == sizeof(timeout) &&
         is_short(timeout.tv_sec, timeout.tv_nsec, longest_s);
}

/* A call of a socket without a timeout is made again by the kernel. */
STACKD_HANDLER static bool is_short_of_socket(int fd, int option, uint32_t longest_s) {
  if (longest_s == 0) return false;
  struct timeval timeout = {0, 0};
  socklen_t bytes = sizeof(timeout);
  long error = stackd_syscall6(SYS_getsockopt, fd, SOL_SOCKET, option, (long)&timeout, (long)&bytes, 0);
  return error == 0 && is_short(timeout.tv_sec, timeout.tv_usec, longest_s);
}

STACKD_HANDLER static bool is_futex_until(const greg_t* registers) {
  return ((uint32_t)registers[REG_RSI] & (uint32_t)FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
}

STACKD_HANDLER static bool is_time_known(int number, const greg_t* registers) {
  if ((unsigned)number >= REPEATED_NUMBERS) return false;
  const uint32_t most_s = __atomic_load_n(&anew_s, __ATOMIC_RELAXED);
  const struct repeated repeated = kRepeated[number];
  const uint64_t timeout = (uint64_t)registers[kRegisters[repeated.argument]];
  switch (repeated.timeout) {
    case NONE:
    case COUNTS_DOWN:
      return true;
    case MILLISECONDS:
      return (int32_t)timeout <= (int64_t)most_s * 1000;
    case TIMESPEC:
      return (number == SYS_futex && is_futex_until(registers)) || is_short_at(timeout, most_s);
    case SLEEP: {
      bool is_until = number == SYS_clock_nanosleep && ((uint32_t)registers[REG_RSI] & TIMER_ABSTIME) != 0;
      /* sleep() has the rest written over what it asked for. */
      bool counts_down = timeout == (uint64_t)registers[kRegisters[repeated.argument + 1]];
      return is_until || counts_down || is_short_at(timeout, most_s);
    }
    case OF_RECEIVING:
      return is_short_of_socket((int)timeout, SO_RCVTIMEO, most_s);
    case OF_SENDING:
      return is_short_of_socket((int)timeout, SO_SNDTIMEO, most_s);
    default:
      return false;
  }
}

/* Whether time ends the call in any case. */
STACKD_HANDLER static bool ends_by_itself(int number, const greg_t* registers) {
  const struct repeated repeated = kRepeated[number];
  const uint64_t timeout = (uint64_t)registers[kRegisters[repeated.argument]];
  switch (repeated.timeout) {
    case NONE:
      return false;
    case MILLISECONDS:
      return (int32_t)timeout >= 0;
    case COUNTS_DOWN:
    case TIMESPEC:
      return timeout != 0;
    default:
      return true;
  }
}

/* Whether a signal will be handled as soon as the handler has ended: the call is to end of that one. Not of the next
 * dump's. */
STACKD_HANDLER static bool has_signal(const ucontext_t* context) {
  uint64_t pending = ~0ull;
  uint64_t mask = *(const uint64_t*)&context->uc_sigmask | 1ull << (stackd_handler_signal() - 1);
  stackd_syscall6(SYS_rt_sigpending, (long)&pending, sizeof(pending), 0, 0, 0, 0);
  return (pending & ~mask) != 0;
}

STACKD_HANDLER static struct stackd_action action_of(int signal_number) {
  if (stackd_chain_is_taken(signal_number)) return stackd_chain_peek(signal_number);
  struct stackd_action action = {0, 0, 0, 0};
  stackd_syscall6(SYS_rt_sigaction, signal_number, 0, (long)&action, sizeof(action.mask), 0, 0);
  return action;
}

/* The C library's own, for pthread_cancel() and setuid(): no program waits for the end of a call by one. */
STACKD_HANDLER static bool is_of_library(int signal_number) { return signal_number == 32 || signal_number == 33; }

/* Whether our signal may wait until the handler has ended. It does where the handler blocks it, or where both wait and the
 * other has a higher number, which goes first then. Else ours interrupts the handler and sees no call, but for the 100 ns
 * in which that returns. */
STACKD_HANDLER static bool may_go_first(int number, const struct stackd_action* action) {
  const uint64_t ours = 1ull << (stackd_wake_signal() - 1) | 1ull << (stackd_handler_signal() - 1);
  return number > stackd_wake_signal() || (action->mask & ours) != 0;
}

void stackd_repeat_prepare(uint32_t begins_anew_s) {
  enum handlers most = NONE_HANDLED;
  for (int number = 1; number < NSIG; number++) {
    const struct stackd_action action = action_of(number);
    if (is_of_library(number) || !stackd_chain_is_handled(&action)) continue;
    if (most == NONE_HANDLED) most = ON_OWN_STACK;
    if ((action.flags & SA_ONSTACK) != 0 && may_go_first(number, &action)) most = ON_ALTERNATE_STACK;
  }
  __atomic_store_n(&handlers, most, __ATOMIC_RELAXED);
  __atomic_store_n(&anew_s, begins_anew_s, __ATOMIC_RELAXED);
}

/* Whether a handler of the program's may have ended the call right before this signal came: that EINTR is the program's.
 * Nothing has run in the thread since, so that the frame of that handler still lies below the stack pointer. It cannot be
 * told where ours lies in its place. But then both signals have come within the time of one handler, which is rare. So only
 * a call without a time limit, which might wait for ever, ends there. */
STACKD_HANDLER static bool is_ended_by_program(int number, const ucontext_t* context) {
  const uint32_t most = __atomic_load_n(&handlers, __ATOMIC_RELAXED);
  const greg_t* now = context->uc_mcontext.gregs;
  if (most == NONE_HANDLED) return false;
  if (most == ON_ALTERNATE_STACK && !ends_by_itself(number, now)) return true;
  struct stackd_signal_frame frame;
  stackd_signal_frame_place(&frame, /*on_stack=*/false, context);
  const bool is_overwritten = frame.new_address == frame.address;
  if (is_overwritten) return true;
  const ucontext_t* former = stackd_signal_frame_context(&frame);
  gregset_t then;
  return stackd_read_memory(stackd_getpid(), (uint64_t)former->uc_mcontext.gregs, then, sizeof(then)) == sizeof(then) &&
         then[REG_RIP] == now[REG_RIP] && then[REG_RSP] == now[REG_RSP] && then[REG_RAX] == now[REG_RAX];
}

void stackd_repeat_call(void* ucontext) {
  ucontext_t* context = ucontext;
  greg_t* registers = context->uc_mcontext.gregs;
  int number = stackd_ended_call_number(context);
  if (number < 0 || !is_time_known(number, registers) || is_ended_by_program(number, context) || has_signal(context))
    return;
  registers[REG_RAX] = number;
  registers[REG_RIP] -= CALL_BYTES;
}
