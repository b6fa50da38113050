#include "agent/crash/crash.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <ucontext.h>

#include "agent/capture/context.h"
#include "agent/crash/active_fault.h"
#include "agent/crash/crash_record.h"
#include "agent/crash/spool_writer.h"
#include "agent/crash/tentative.h"
#include "agent/signals/dump_signal.h"
#include "agent/signals/sigchain.h"
#include "agent/signals/signal_frame.h"
#include "agent/sys/fork_reset.h"
#include "agent/sys/process_id.h"
#include "stackd/wire.h"

#define MS 1000000ull
/* The daemon takes the record within this part of the hold, or is not there. */
#define TAKEN_PART 4
#define MAX_TAKEN_NS (500 * MS)
/* What the daemon has not stored goes to a file, in these eighths of the hold, each process at a moment of its own. Of a
 * thousand that crash at once hundreds may be late, and all of them write, and end, on the same few CPUs. */
#define SPOOL_FIRST_EIGHTH 4
#define SPOOL_EIGHTHS 2
/* A daemon that dies is noticed after so long, or after this part of the time that it was waited for. When a thousand
 * processes wait, their looking must not keep it from its work. */
#define LOOK_NS (10 * MS)
#define LOOK_PART 4
/* Threads that crash together wait a little longer than the one whose crash is recorded. */
#define LOSER_GRACE_NS (80 * MS)
/* From the end of the hold until the kernel has ended the process. */
#define DEATH_NS (100 * MS)
/* For the record of a fault that the program may recover from. */
#define HELPER_START_NS (50 * MS)
/* For the daemon, to load what is mapped: some milliseconds. */
#define MODULES_NS (50 * MS)
/* Between a signal that abort() raises and its frame lie those of raise() and what that calls. */
#define ABORT_WORDS 64
#define ABORT_CODE_BYTES 512
#define SYSCALL_BYTES 2
/* Four times what a record needs: with the frame of a fault of our own, and the handler of that. */
#define SPARE_STACK_BYTES (4 * STACKD_CRASH_STACK_BYTES)

enum phase { NONE = 0, CAPTURING = 1, COMMITTED = 2, OVER = 3 };

static uint64_t hold_ns;
static const struct stackd_own_fd* maps_fd;
static const struct stackd_own_fd* spare_fd;
static uint64_t abort_code; /* where abort() begins; 0: unknown */

static const struct stackd_crash_link* _Atomic current_link;
static const struct stackd_own_fd* _Atomic current_spool;
static uint32_t link_users;

static uint32_t helper_has_tried; /* a futex word */
static uint32_t has_met_fault;    /* that the program's handler was called for */
static uint32_t has_asked;        /* for its modules to be loaded */

static uint32_t winner; /* tid */
static uint32_t phase;  /* enum phase; a futex word */

/* The winner's. */
static struct {
  struct stackd_fault fault;
  /* What the process dies of: a handler that was called for the fault may have raised another signal. 0: it exits. */
  int32_t end_signal;
  siginfo_t* end_info;
  const struct stackd_crash_link* link;
  const struct stackd_ring* ring;
  uint32_t first_slot;
  uint32_t own_faults;
  uint64_t begin_ns;
} crash;

static char spare_stack[SPARE_STACK_BYTES] __attribute__((aligned(16)));

void stackd_crash_init(uint64_t use_hold_ns, const struct stackd_own_fd* maps, const struct stackd_own_fd* spare) {
  hold_ns = use_hold_ns;
  maps_fd = maps;
  spare_fd = spare;
}

void stackd_crash_set_abort(uint64_t code) { abort_code = code; }

void stackd_crash_set_link(const struct stackd_crash_link* link) { atomic_store(&current_link, link); }

void stackd_crash_set_spool(const struct stackd_own_fd* spool) { atomic_store(&current_spool, spool); }

bool stackd_crash_is_using_link(void) { return __atomic_load_n(&link_users, __ATOMIC_SEQ_CST) != 0; }

void stackd_crash_reset_after_fork(void) {
  STACKD_RESET(current_link, NULL);
  STACKD_RESET(current_spool, NULL);
  STACKD_RESET(link_users, 0);
  STACKD_RESET(helper_has_tried, 0);
  STACKD_RESET(has_met_fault, 0);
  STACKD_RESET(has_asked, 0);
  STACKD_RESET(winner, 0);
  STACKD_RESET(phase, NONE);
  stackd_active_fault_reset_after_fork();
}

uint32_t stackd_crash_winner(void) {
  return __atomic_load_n(&phase, __ATOMIC_SEQ_CST) != OVER ? __atomic_load_n(&winner, __ATOMIC_SEQ_CST) : 0;
}

/* Gives a futex word of this process a value, and wakes the threads that wait for that. */
STACKD_HANDLER static void set_word(uint32_t* word, uint32_t value) {
  __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
  stackd_syscall6(SYS_futex, (long)word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT32_MAX, 0, 0, 0);
}

STACKD_HANDLER static struct timespec timespec_of(uint64_t ns) {
  return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

/* Waits until `*word` is `value`, at most until `end_ns`. */
STACKD_HANDLER static void wait_for_word(uint32_t* word, uint32_t value, uint64_t end_ns) {
  for (;;) {
    uint32_t seen = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    uint64_t now_ns = stackd_clock_ns(CLOCK_MONOTONIC);
    if (seen == value || now_ns >= end_ns) return;
    struct timespec timeout = timespec_of(end_ns - now_ns);
    stackd_futex_wait(word, seen, &timeout, FUTEX_PRIVATE_FLAG);
  }
}

STACKD_HANDLER void stackd_crash_helper_has_tried(void) { set_word(&helper_has_tried, 1); }

void stackd_crash_helper_leaves(void) { __atomic_store_n(&helper_has_tried, 0, __ATOMIC_SEQ_CST); }

/* Everything blocked but `open`, which are faults of the handler's own: blocked, they would kill it. */
STACKD_HANDLER static void block_all_but(uint64_t open) {
  uint64_t mask = ~open;
  stackd_syscall6(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, 8, 0, 0);
}

#define BIT(signal_number) (1ull << ((signal_number) - 1))
#define FAULTS (BIT(SIGSEGV) | BIT(SIGBUS) | BIT(SIGILL) | BIT(SIGFPE) | BIT(SIGTRAP) | BIT(SIGSYS))

/* --- The hold --- */

STACKD_HANDLER static uint64_t taken_within_ns(void) {
  return hold_ns / TAKEN_PART < MAX_TAKEN_NS ? hold_ns / TAKEN_PART : MAX_TAKEN_NS;
}

/* `type`: of a message that is a header alone. */
STACKD_HANDLER static bool tell_daemon(const struct stackd_crash_link* link, uint32_t type) {
  stackd_ring_doorbell(link->ring);
  int socket = stackd_own_fd_get(&link->socket);
  if (socket < 0) return false;
  struct stackd_message_header message = {type, sizeof(message)};
  long sent = stackd_syscall6(SYS_sendto, socket, (long)&message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);
  /* A full socket: the daemon may yet look at the ring. */
  return sent >= 0 || sent == -EAGAIN;
}

STACKD_HANDLER static bool daemon_is_gone(const struct stackd_crash_link* link) {
  int socket = stackd_own_fd_get(&link->socket);
  struct pollfd look = {socket, POLLRDHUP, 0};
  struct timespec no_time = {0, 0};
  return socket < 0 || stackd_syscall6(SYS_ppoll, (long)&look, 1, (long)&no_time, 0, 0, 0) != 0;
}

STACKD_HANDLER static uint64_t stored_within_ns(void) {
  const struct stackd_crash_record* record = stackd_slot(crash.ring, crash.first_slot);
  /* An id is random. */
  uint64_t own_part = record->id[0] % 256;
  return hold_ns / 8 * SPOOL_FIRST_EIGHTH + hold_ns / 8 * SPOOL_EIGHTHS * own_part / 256;
}

/* True if the daemon has the record on disk. */
STACKD_HANDLER static bool hold(const struct stackd_crash_link* link, uint64_t begin_ns) {
  if (!tell_daemon(link, STACKD_MSG_CRASH)) return false;
  uint64_t stored_ns = stored_within_ns();
  uint32_t* word = &link->ring->header->crash_phase;
  for (;;) {
    uint32_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    if (seen >= STACKD_CRASH_STORED) return true;
    uint64_t held_ns = stackd_clock_ns(CLOCK_MONOTONIC) - begin_ns;
    uint64_t limit_ns = seen >= STACKD_CRASH_TAKEN ? stored_ns : taken_within_ns();
    if (held_ns >= limit_ns || daemon_is_gone(link)) return false;
    uint64_t wait_ns = held_ns / LOOK_PART > LOOK_NS ? held_ns / LOOK_PART : LOOK_NS;
    if (wait_ns > limit_ns - held_ns) wait_ns = limit_ns - held_ns;
    struct timespec timeout = timespec_of(wait_ns);
    stackd_futex_wait(word, seen, &timeout, 0);
  }
}

/* At the start of a process. */
STACKD_HANDLER static void wait_for_helper(uint64_t duration_ns) {
  if (__atomic_load_n(&helper_has_tried, __ATOMIC_SEQ_CST) != 0) return;
  uint64_t end_ns = stackd_clock_ns(CLOCK_MONOTONIC) + duration_ns;
  stackd_crash_start_helper();
  wait_for_word(&helper_has_tried, 1, end_ns);
}

void stackd_crash_await_helper(uint64_t duration_ns) { wait_for_helper(duration_ns); }

/* --- The final record --- */

STACKD_HANDLER static void commit(uint32_t more_flags) {
  struct stackd_crash_record* record = stackd_slot(crash.ring, crash.first_slot);
  record->flags |= more_flags;
  struct stackd_ring_writer writer;
  writer.ring = crash.ring;
  writer.first_slot = crash.first_slot;
  stackd_ring_commit(&writer);
}

/* Commits the record, and has the daemon store it or writes it to a file. Then ends the wait of the other threads. */
STACKD_HANDLER static void finish(uint32_t more_flags) {
  if (crash.first_slot != STACKD_NO_SLOT) {
    commit(more_flags);
    set_word(&phase, COMMITTED);
    const struct stackd_crash_link* link = crash.link;
    bool told = link != NULL && crash.ring == link->ring;
    if (told) stackd_tentative_withdraw_all(link->ring);
    if (!told || !hold(link, crash.begin_ns)) {
      struct stackd_spool_fds fds = {-1, stackd_own_fd_get(maps_fd), stackd_own_fd_get(spare_fd)};
      const struct stackd_own_fd* spool = atomic_load(&current_spool);
      if (spool != NULL) fds.given = stackd_own_fd_get(spool);
      stackd_spool_write(crash.ring, crash.first_slot, &fds);
    }
  }
  set_word(&phase, OVER);
}

STACKD_HANDLER static void write_record(const struct stackd_ring* ring) {
  crash.ring = ring;
  stackd_crash_record_write(ring, stackd_ring_free_crash_slots(ring), &crash.fault,
                            (struct stackd_crash_sources){.maps_fd = stackd_own_fd_get(maps_fd)}, &crash.first_slot);
}

/* The handler has met a fault of its own before the record was whole. The daemon's ring may be what is broken. */
STACKD_HANDLER static void record_again(void) {
  crash.own_faults++;
  bool begun = crash.first_slot != STACKD_NO_SLOT;
  if ((!begun || crash.own_faults > 1) && crash.ring != stackd_spool_ring()) {
    crash.first_slot = STACKD_NO_SLOT;
    write_record(stackd_spool_ring());
  } else if (crash.own_faults > 2) {
    return;
  }
  finish(STACKD_CRASH_AGENT_FAULT);
}

void stackd_crash_record_now(void) {
  crash.begin_ns = stackd_clock_ns(CLOCK_MONOTONIC);
  crash.first_slot = STACKD_NO_SLOT;
  crash.own_faults = 0;
  block_all_but(FAULTS);
  wait_for_helper(taken_within_ns());
  crash.link = atomic_load(&current_link);
  if (crash.link != NULL) write_record(crash.link->ring);
  if (crash.first_slot == STACKD_NO_SLOT) write_record(stackd_spool_ring());
  finish(0);
}

/* Records where the stack has no room. A program's alternate stacks may be small: those that Rust's standard library makes
 * have 8 KiB. A handler of its own that aborts has used some of it. */
STACKD_HANDLER static void record_on_spare_stack(void) {
  stack_t spare = {.ss_sp = spare_stack, .ss_size = sizeof(spare_stack)};
  stack_t before = {.ss_flags = SS_DISABLE};
  void* top = spare_stack + sizeof(spare_stack);
  stack_t* first = &spare;
  stack_t* second = &before;
  /* Changes the alternate stack from the spare stack, since the kernel refuses that to a thread that is on its alternate
   * stack. Unchanged, a fault of our own would begin at its top, where the frames are that the process is to die by. */
  __asm__ volatile(
      "mov %%rsp, %%rbx\n\t"
      "mov %[top], %%rsp\n\t"
      "mov %[sigaltstack], %%eax\n\t"
      "syscall\n\t"
      "call stackd_crash_record_now\n\t"
      "mov %%rbx, %%rsp"
      : [top] "+&r"(top), "+D"(first), "+S"(second)
      : [sigaltstack] "i"(SYS_sigaltstack)
      : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
        "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "memory", "cc");
  stackd_syscall6(SYS_sigaltstack, (long)&before, 0, 0, 0, 0, 0);
}

STACKD_HANDLER static void record_crash(const struct stackd_fault* fault, int end_signal, siginfo_t* end_info) {
  crash.fault = *fault;
  crash.end_signal = end_signal;
  crash.end_info = end_info;
  /* Twice: further down it is asked again. */
  if (stackd_has_room(fault->context, 2 * STACKD_CRASH_STACK_BYTES)) {
    stackd_crash_record_now();
  } else {
    record_on_spare_stack();
  }
}

STACKD_HANDLER static void wait_for_winner(void) {
  /* This thread is to be in the dump too. */
  block_all_but(FAULTS | BIT(stackd_handler_signal()));
  wait_for_word(&phase, OVER, stackd_clock_ns(CLOCK_MONOTONIC) + hold_ns + LOSER_GRACE_NS);
}

/* Ends the process of `signal_number`, when the handler that was given `context` returns. */
STACKD_HANDLER static void die(int signal_number, siginfo_t* info, void* context) {
  stackd_chain_end(signal_number, info, context);
  if (stackd_kept_pid() != 1) return;
  /* For the first process of a PID namespace the queued signal is dropped. A fault is met again; a refused system call is,
   * if it is made again; a breakpoint is not. */
  if (signal_number == SIGSYS) ((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP] -= SYSCALL_BYTES;
  if (signal_number == SIGTRAP) {
    block_all_but(FAULTS);
    __asm__ volatile("int3");
  }
}

/* Records `fault` unless another thread does, and returns when the process may end. The thread's signal mask is another
 * afterwards. */
STACKD_HANDLER static void record_once(const struct stackd_fault* fault, int end_signal, siginfo_t* end_info) {
  uint32_t nobody = 0;
  bool won =
      __atomic_compare_exchange_n(&winner, &nobody, (uint32_t)stackd_gettid(), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  if (won) {
    set_word(&phase, CAPTURING);
    record_crash(fault, end_signal, end_info);
  } else {
    wait_for_winner();
  }
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

STACKD_HANDLER static uint64_t rsp_of(const void* context) {
  return (uint64_t)((const ucontext_t*)context)->uc_mcontext.gregs[REG_RSP];
}

STACKD_HANDLER static uint64_t rip_of(const void* context) {
  return (uint64_t)((const ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
}

/* A fault of this handler's own. (In OVER it would be the program's, which went on after exit() in a handler of its own.)
 */
STACKD_HANDLER static bool is_own_fault(void) {
  uint32_t now = stackd_crash_winner();
  return now != 0 && now == (uint32_t)stackd_gettid();
}

/* The process dies of what it was to die of. */
STACKD_HANDLER static void die_after_own_fault(const struct stackd_fault* fault) {
  if (__atomic_load_n(&phase, __ATOMIC_SEQ_CST) < COMMITTED) record_again();
  bool by_signal = crash.end_signal != 0;
  die(by_signal ? crash.end_signal : fault->signal_number, by_signal ? crash.end_info : fault->info, fault->context);
}

/* Records the fault that the process ends of, `fault` or the one whose handler it came in. */
STACKD_HANDLER static void record_what_led_to(const struct stackd_fault* fault) {
  uint32_t tid = (uint32_t)stackd_gettid();
  struct stackd_fault original;
  bool handled = original_fault(tid, rsp_of(fault->context), fault, &original);
  __atomic_fetch_add(&link_users, 1, __ATOMIC_SEQ_CST);
  record_once(handled ? &original : fault, fault->signal_number, fault->info);
  __atomic_fetch_sub(&link_users, 1, __ATOMIC_SEQ_CST);
}

STACKD_HANDLER static void die_after_record(const struct stackd_fault* fault) {
  record_what_led_to(fault);
  die(fault->signal_number, fault->info, fault->context);
}

/* Whether the process is dying of another thread's crash: but for us, it would be dead. */
STACKD_HANDLER static bool is_dying_elsewhere(void) {
  uint32_t first = __atomic_load_n(&winner, __ATOMIC_SEQ_CST);
  if (first == 0 || first == (uint32_t)stackd_gettid()) return false;
  return __atomic_load_n(&phase, __ATOMIC_SEQ_CST) != OVER || crash.end_signal != 0;
}

STACKD_HANDLER static void wait_for_death(void) {
  wait_for_winner();
  uint32_t never = 0;
  wait_for_word(&never, 1, stackd_clock_ns(CLOCK_MONOTONIC) + DEATH_NS);
}

/* Whether the end of the process, by a thread at `rsp`, may concern a fault. */
STACKD_HANDLER static bool has_something_to_say(uint64_t rsp) {
  return __atomic_load_n(&winner, __ATOMIC_SEQ_CST) != 0 || stackd_tentative_is_any() ||
         stackd_active_fault_may_be_around(rsp);
}

void stackd_crash_before_end(void) {
  /* A filter of the program's may allow it to end, and next to nothing else. */
  if (!has_something_to_say((uint64_t)__builtin_frame_address(0))) return;
  if (stackd_is_other_process()) return;
  if (is_dying_elsewhere()) {
    uint64_t before = 0;
    stackd_syscall6(SYS_rt_sigprocmask, SIG_SETMASK, 0, (long)&before, 8, 0, 0);
    wait_for_death();
    stackd_syscall6(SYS_rt_sigprocmask, SIG_SETMASK, (long)&before, 0, 8, 0, 0);
    return;
  }
  struct stackd_fault original;
  uint64_t here = (uint64_t)__builtin_frame_address(0);
  __atomic_fetch_add(&link_users, 1, __ATOMIC_SEQ_CST);
  const struct stackd_crash_link* link = atomic_load(&current_link);
  if (original_fault((uint32_t)stackd_gettid(), here, NULL, &original)) {
    uint64_t before = 0;
    stackd_syscall6(SYS_rt_sigprocmask, SIG_SETMASK, 0, (long)&before, 8, 0, 0);
    record_once(&original, 0, NULL);
    stackd_syscall6(SYS_rt_sigprocmask, SIG_SETMASK, (long)&before, 0, 8, 0, 0);
  } else if (link != NULL && __atomic_load_n(&winner, __ATOMIC_SEQ_CST) == 0) {
    stackd_tentative_withdraw_all(link->ring);
  }
  __atomic_fetch_sub(&link_users, 1, __ATOMIC_SEQ_CST);
}

/* --- The program's handler --- */

/* Ends the entries of faults that are over without their handler having returned. */
STACKD_HANDLER static void leave_stale(const struct stackd_ring* ring, uint32_t tid, uint64_t rsp) {
  uint32_t index = 0;
  struct stackd_active_fault* stale;
  while ((stale = stackd_active_fault_stale(tid, rsp, &index)) != NULL) {
    if (ring != NULL) stackd_tentative_withdraw(ring, stale);
    stackd_active_fault_leave(stale, false);
  }
}

void stackd_crash_before_jump(void) {
  if (!stackd_tentative_is_any() || stackd_is_other_process()) return;
  uint32_t tid = (uint32_t)stackd_gettid();
  __atomic_fetch_add(&link_users, 1, __ATOMIC_SEQ_CST);
  const struct stackd_crash_link* link = atomic_load(&current_link);
  /* The record alone: a handler may also jump about in itself, and die after that. */
  uint32_t index = 0;
  struct stackd_active_fault* active;
  while (link != NULL && (active = stackd_active_fault_stale(tid, ~0ull, &index)) != NULL) {
    stackd_tentative_withdraw(link->ring, active);
  }
  __atomic_fetch_sub(&link_users, 1, __ATOMIC_SEQ_CST);
}

STACKD_HANDLER static bool raised_itself(int signal_number, const siginfo_t* info) {
  return signal_number == SIGABRT && info->si_code == SI_TKILL && info->si_pid == stackd_kept_pid();
}

/* abort() ends the process when the handler of its signal has returned; raise() does not. The return address tells. */
STACKD_HANDLER static bool is_in_abort(const struct stackd_fault* fault) {
  if (abort_code == 0 || !raised_itself(fault->signal_number, fault->info)) return false;
  uint64_t words[ABORT_WORDS];
  long got = stackd_read_memory(stackd_kept_pid(), rsp_of(fault->context), words, sizeof(words));
  for (long i = 0; i < got / (long)sizeof(words[0]); i++) {
    if (words[i] - abort_code < ABORT_CODE_BYTES) return true;
  }
  return false;
}

/* To the first process of a PID namespace the kernel sends no signal that it has no handler for. abort() goes on there, and
 * ends the process by an instruction that it may not use: from glibc 2.41 on with that fault blocked. */
STACKD_HANDLER static void record_abort_of_first_process(const struct stackd_fault* fault) {
  if (!is_in_abort(fault)) return;
  record_what_led_to(fault);
}

/* The handler has given the signal its default action, in a way that we do not see, and returned to the instruction that
 * faulted. It will fault again next, and then the kernel ends the process without calling us. */
STACKD_HANDLER static bool will_fault_again(const struct stackd_fault* fault, uint64_t rip) {
  return !stackd_is_sent(fault->info) && rip_of(fault->context) == rip && stackd_chain_is_cut(fault->signal_number);
}

/* `rip`: where the fault was. */
STACKD_HANDLER static void after_handler(const struct stackd_ring* ring, const struct stackd_fault* fault, uint64_t rip,
                                         struct stackd_active_fault* active) {
  if (is_in_abort(fault) || will_fault_again(fault, rip)) {
    struct stackd_fault handled = *fault;
    handled.flags = STACKD_CRASH_HANDLED;
    record_once(&handled, fault->signal_number, fault->info);
  }
  /* If the signal ends the program next, the kernel does not call us. So the record stands until the program goes on for
   * long enough, or says that it ends otherwise. */
  if (ring != NULL && !stackd_chain_is_cut(fault->signal_number)) stackd_tentative_withdraw(ring, active);
  stackd_active_fault_leave(active, stackd_chain_is_default(fault->signal_number));
}

/* A handler may end the process without our seeing it: Go's does, by a system call of its own. Then no process is left that
 * can tell what was mapped. In the first second of a process the daemon has not asked by itself, so it is to ask now. Once,
 * as in remember(). */
STACKD_HANDLER static void have_modules_loaded(const struct stackd_crash_link* link) {
  uint32_t* known = &link->ring->header->modules_known;
  if (__atomic_load_n(known, __ATOMIC_ACQUIRE) != 0 || __atomic_exchange_n(&has_asked, 1, __ATOMIC_RELAXED) != 0) return;
  if (!tell_daemon(link, STACKD_MSG_FAULT)) return;
  uint64_t end_ns = stackd_clock_ns(CLOCK_MONOTONIC) + MODULES_NS;
  while (__atomic_load_n(known, __ATOMIC_ACQUIRE) == 0 && !daemon_is_gone(link)) {
    uint64_t now_ns = stackd_clock_ns(CLOCK_MONOTONIC);
    if (now_ns >= end_ns) return;
    uint64_t left_ns = end_ns - now_ns;
    struct timespec timeout = timespec_of(left_ns < LOOK_NS ? left_ns : LOOK_NS);
    stackd_futex_wait(known, 0, &timeout, 0);
  }
}

void stackd_crash_make_known(uint64_t duration_ns) {
  wait_for_helper(duration_ns);
  __atomic_fetch_add(&link_users, 1, __ATOMIC_SEQ_CST);
  const struct stackd_crash_link* link = atomic_load(&current_link);
  if (link != NULL) have_modules_loaded(link);
  __atomic_fetch_sub(&link_users, 1, __ATOMIC_SEQ_CST);
}

/* Remembers the fault, on our own stack: the program's may be small. */
STACKD_HANDLER static struct stackd_active_fault* remember(const struct stackd_fault* fault,
                                                           const struct stackd_signal_frame* frame) {
  uint32_t tid = (uint32_t)stackd_gettid();
  /* Once: a daemon that is stopped does not answer the helper for as long as that lasts. */
  if (__atomic_exchange_n(&has_met_fault, 1, __ATOMIC_RELAXED) == 0) wait_for_helper(HELPER_START_NS);
  __atomic_fetch_add(&link_users, 1, __ATOMIC_SEQ_CST);
  const struct stackd_crash_link* link = atomic_load(&current_link);
  leave_stale(link != NULL ? link->ring : NULL, tid, rsp_of(fault->context));
  struct stackd_active_fault* active = stackd_active_fault_enter(tid, fault->signal_number, frame);
  bool may_record = active != NULL && link != NULL && __atomic_load_n(&winner, __ATOMIC_RELAXED) == 0 &&
                    stackd_code_ranges_current() != NULL && stackd_has_room(fault->context, STACKD_CRASH_STACK_BYTES);
  if (may_record) {
    stackd_tentative_write(link->ring, fault, active);
    if (active->record_id != 0) have_modules_loaded(link);
  }
  __atomic_fetch_sub(&link_users, 1, __ATOMIC_SEQ_CST);
  return active;
}

void stackd_run_handler(int signal_number, siginfo_t* info, void* context, const struct stackd_handler_call* call) {
  uint64_t rip = rip_of(context);
  stackd_chain_call(&call->action, signal_number, info, context);
  if (call->active == NULL) return;
  struct stackd_fault fault = {signal_number, 0, info, context};
  __atomic_fetch_add(&link_users, 1, __ATOMIC_SEQ_CST);
  const struct stackd_crash_link* link = atomic_load(&current_link);
  after_handler(link != NULL ? link->ring : NULL, &fault, rip, call->active);
  __atomic_fetch_sub(&link_users, 1, __ATOMIC_SEQ_CST);
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
  block_all_but(0);
  return false;
}

void stackd_on_crash_signal(int signal_number, siginfo_t* info, void* context) {
  if (leave_to_broker(signal_number, info, context)) return;
  struct stackd_fault fault = {signal_number, 0, info, context};
  if (is_own_fault()) {
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
  if (action.handler != STACKD_ACTION_DEFAULT) {
    struct stackd_signal_frame frame;
    stackd_signal_frame_place(&frame, (action.flags & SA_ONSTACK) != 0, context);
    if (stackd_signal_frame_fits(&frame)) {
      struct stackd_handler_call call = {action, ours ? remember(&fault, &frame) : NULL};
      stackd_enter_handler(&frame, signal_number, &call);
      return;
    }
  }
  if (!ours) {
    die(signal_number, info, context);
    return;
  }
  if (stackd_kept_pid() == 1 && stackd_is_sent(info) && action.handler == STACKD_ACTION_DEFAULT) {
    record_abort_of_first_process(&fault);
    return;
  }
  die_after_record(&fault);
}
