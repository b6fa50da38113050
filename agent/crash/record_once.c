#include "agent/crash/record_once.h"

#include "agent/capture/context.h"
#include "agent/crash/crash.h"
#include "agent/crash/crash_hold.h"
#include "agent/crash/spool_writer.h"
#include "agent/crash/tentative.h"
#include "agent/signals/dump_signal.h"
#include "agent/sys/fork_reset.h"
#include "agent/sys/futex_word.h"
#include "agent/sys/large.h"

#define MS 1000000ull
/* Threads that crash together wait a little longer than the one whose crash is recorded. */
#define OTHERS_GRACE_NS (80 * MS)
/* From the end of the hold until the kernel has ended the process. */
#define DEATH_NS (100 * MS)
/* Four times what a record needs: with the frame of a fault of our own, and the handler of that. */
#define SPARE_STACK_BYTES (4 * STACKD_CRASH_STACK_BYTES)

enum phase { NONE = 0, CAPTURING = 1, COMMITTED = 2, OVER = 3 };

static const struct stackd_own_fd* maps_fd;
static const struct stackd_own_fd* spare_fd;

static uint32_t recording_tid; /* 0: none yet */
static uint32_t phase;         /* enum phase; a futex word */

/* What belongs to the thread that records. */
static struct {
  struct stackd_fault fault;
  int32_t end_signal;
  siginfo_t* end_info;
  const struct stackd_crash_link* link;
  const struct stackd_ring* ring;
  uint32_t first_slot;
  uint32_t own_faults;
  uint64_t begin_ns;
} crash;

static STACKD_LARGE char spare_stack[SPARE_STACK_BYTES] __attribute__((aligned(16)));

void stackd_record_once_init(const struct stackd_own_fd* maps, const struct stackd_own_fd* spare) {
  maps_fd = maps;
  spare_fd = spare;
}

/* Commits the record, and has the daemon store it or writes it to a file. Then ends the wait of the other threads. */
STACKD_HANDLER static void finish(uint32_t more_flags) {
  if (crash.first_slot != STACKD_NO_SLOT) {
    struct stackd_crash_record* record = stackd_slot(crash.ring, crash.first_slot);
    record->flags |= more_flags;
    struct stackd_ring_writer writer;
    writer.ring = crash.ring;
    writer.first_slot = crash.first_slot;
    stackd_ring_commit(&writer);
    stackd_futex_word_set(&phase, COMMITTED);
    const struct stackd_crash_link* link = crash.link;
    bool told = link != NULL && crash.ring == link->ring;
    if (told) stackd_tentative_withdraw_all(link->ring);
    if (!told || !stackd_crash_hold(link, record, crash.begin_ns)) {
      struct stackd_spool_fds fds = {stackd_crash_spool_fd(), stackd_own_fd_get(maps_fd), stackd_own_fd_get(spare_fd)};
      stackd_spool_write(crash.ring, crash.first_slot, &fds);
    }
  }
  stackd_futex_word_set(&phase, OVER);
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

void stackd_record_now(void) {
  crash.begin_ns = stackd_clock_ns(CLOCK_MONOTONIC);
  crash.first_slot = STACKD_NO_SLOT;
  crash.own_faults = 0;
  stackd_set_signal_mask(STACKD_CRASH_MASK);
  stackd_crash_await_helper(stackd_crash_taken_within_ns());
  crash.link = stackd_crash_link_acquire();
  if (crash.link != NULL) write_record(crash.link->ring);
  if (crash.first_slot == STACKD_NO_SLOT) write_record(stackd_spool_ring());
  finish(0);
  stackd_crash_link_release();
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
      "call stackd_record_now\n\t"
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
    stackd_record_now();
  } else {
    record_on_spare_stack();
  }
}

STACKD_HANDLER static void await_other_thread(void) {
  /* This thread is to be in the dump too. */
  stackd_set_signal_mask(STACKD_CRASH_MASK & ~STACKD_SIGNAL_BIT(stackd_handler_signal()));
  stackd_futex_word_await(&phase, OVER, stackd_clock_ns(CLOCK_MONOTONIC) + stackd_crash_hold_ns() + OTHERS_GRACE_NS);
}

void stackd_record_once(const struct stackd_fault* fault, int end_signal, siginfo_t* end_info) {
  uint32_t none = 0;
  bool is_first =
      __atomic_compare_exchange_n(&recording_tid, &none, (uint32_t)stackd_gettid(), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  if (is_first) {
    stackd_futex_word_set(&phase, CAPTURING);
    record_crash(fault, end_signal, end_info);
  } else {
    await_other_thread();
  }
}

bool stackd_record_has_begun(void) { return __atomic_load_n(&recording_tid, __ATOMIC_SEQ_CST) != 0; }

uint32_t stackd_crash_recording_tid(void) {
  return __atomic_load_n(&phase, __ATOMIC_SEQ_CST) != OVER ? __atomic_load_n(&recording_tid, __ATOMIC_SEQ_CST) : 0;
}

/* (In OVER it would be the program's, which went on after exit() in a handler of its own.) */
bool stackd_record_is_own_fault(void) {
  uint32_t now = stackd_crash_recording_tid();
  return now != 0 && now == (uint32_t)stackd_gettid();
}

bool stackd_record_after_own_fault(int* end_signal, siginfo_t** end_info) {
  if (__atomic_load_n(&phase, __ATOMIC_SEQ_CST) < COMMITTED) record_again();
  *end_signal = crash.end_signal;
  *end_info = crash.end_info;
  return crash.end_signal != 0;
}

bool stackd_record_is_dying_elsewhere(void) {
  uint32_t first = __atomic_load_n(&recording_tid, __ATOMIC_SEQ_CST);
  if (first == 0 || first == (uint32_t)stackd_gettid()) return false;
  return __atomic_load_n(&phase, __ATOMIC_SEQ_CST) != OVER || crash.end_signal != 0;
}

void stackd_record_await_death(void) {
  await_other_thread();
  uint32_t never = 0;
  stackd_futex_word_await(&never, 1, stackd_clock_ns(CLOCK_MONOTONIC) + DEATH_NS);
}

void stackd_record_once_reset_after_fork(void) {
  STACKD_RESET(recording_tid, 0);
  STACKD_RESET(phase, NONE);
}
