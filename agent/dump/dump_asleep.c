#include <string.h>

#include "agent/capture/capture.h"
#include "agent/capture/context.h"
#include "agent/dump/dump_run.h"
#include "agent/dump/quiet_read.h"
#include "agent/maps/code_ranges.h"
#include "agent/runtimes/runtimes.h"
#include "agent/signals/altstack.h"

#define QUIET_TRIES 3
/* Below a thread's rsp, where the kernel puts no frame. */
#define RED_ZONE_BYTES 128u

/* A capture that the helper makes, but for registers, name and flags. */
static struct stackd_capture begin_capture(const struct stackd_dump* dump, uint32_t tid) {
  struct stackd_capture capture;
  memset(&capture, 0, sizeof(capture));
  capture.begin_ns = stackd_monotonic_ns();
  capture.ring = dump->job->ring;
  capture.ranges = stackd_code_ranges_current();
  capture.filter = stackd_filter_choose();
  capture.seq = dump->job->seq;
  capture.tid = tid;
  capture.pid = dump->pid;
  capture.max_stack_bytes = dump->options->max_stack_bytes;
  return capture;
}

/* A thread that sleeps is read by us: of its registers rsp and rip are known, and rbp may be (0: is not). Where no status
 * comes for it besides, it counts as captured. 0; -EAGAIN if it ran meanwhile, so that the copy was torn; -ENOSPC. */
static int capture_sleeping(const struct stackd_dump* dump, const struct stackd_thread_entry* entry,
                            const struct stackd_quiet_look* look, uint64_t rbp) {
  struct stackd_capture capture = begin_capture(dump, entry->tid);
  capture.flags = STACKD_THREAD_BY_HELPER;
  capture.max_stack_bytes = entry->max_stack_bytes;
  capture.cpu_ns = look->cpu_ns;
  capture.thread_self = stackd_quiet_thread_self(entry->tid);
  stackd_task_read_name(dump->task_fd, entry->tid, capture.name);
  capture.regs[STACKD_REG_RSP] = look->sleep.rsp;
  capture.regs[STACKD_REG_RIP] = look->sleep.rip;
  capture.regs[STACKD_REG_RBP] = rbp;
  capture.call = look->sleep.call;
  struct stackd_ring_writer writer;
  int error = stackd_capture_begin(&capture, &writer);
  if (error != 0) return error;
  if (!stackd_quiet_is_whole(look)) {
    stackd_ring_abandon(&writer);
    return -EAGAIN;
  }
  stackd_ring_commit(&writer);
  return 0;
}

void stackd_dump_capture_where_it_is(const struct stackd_dump* dump, const struct stackd_thread_entry* entry) {
  struct stackd_quiet_look look;
  for (int tries = 0; tries < QUIET_TRIES && stackd_quiet_begin(&look, dump->task_fd, entry->tid) == 0; tries++) {
    int error = capture_sleeping(dump, entry, &look, 0);
    stackd_quiet_end(&look);
    if (error != -EAGAIN) return;
  }
}

/* The kernel ends a program in which the frame of a signal does not fit. The main thread's stack grows. */
bool stackd_dump_lacks_room(const struct stackd_dump* dump, uint32_t tid, uint64_t rsp) {
  if (stackd_altstack_is_everywhere() || tid == (uint32_t)dump->pid) return false;
  const struct stackd_code_ranges* ranges = stackd_code_ranges_current();
  if (ranges == NULL) return false;
  struct stackd_interval stack = stackd_writable_mapping(ranges, rsp);
  uint64_t needed_bytes = RED_ZONE_BYTES + stackd_signal_frame_bytes() + STACKD_CAPTURE_STACK_BYTES;
  return stack.end != 0 && rsp - stack.start < needed_bytes;
}

/* Whether a thread that sleeps there is to be left asleep. */
static bool is_to_sleep_on(const struct stackd_dump* dump, const struct stackd_quiet_look* look) {
  const struct stackd_syscall* call = &look->sleep.call;
  if (dump->options->quiet == STACKD_QUIET_NEVER || look->schedstat_fd < 0 || (call->known & STACKD_SYSCALL_KNOWN) == 0)
    return false;
  bool is_restarted = stackd_call_is_restarted(call) && !stackd_dump_lacks_room(dump, look->tid, look->sleep.rsp);
  if (dump->options->quiet == STACKD_QUIET_PREFER && is_restarted) return false;
  struct stackd_task_status status;
  return !stackd_call_may_be_uninterruptible(call) ||
         (stackd_task_read_status(dump->task_fd, look->tid, &status) == 0 && status.state == 'S');
}

/* Waits, after a record that did not fit, until there is room for another one. False if the daemon waits for it no more. */
static bool make_room_for(struct stackd_dump* dump, struct stackd_thread_entry* entry) {
  stackd_dump_count_refusal(entry);
  stackd_dump_wait_for_room(dump);
  return !stackd_job_is_over(dump->job);
}

/* -EAGAIN: it ran meanwhile. -EINVAL: it is not to be read asleep. -ENOSPC: no room in the ring. */
static int read_asleep(const struct stackd_dump* dump, const struct stackd_thread_entry* entry,
                       const struct stackd_quiet_look* look) {
  bool may_not_interrupt = stackd_runtimes_have_uninterruptible();
  uint64_t rbp = may_not_interrupt ? stackd_runtimes_must_not_interrupt(&look->sleep.call, look->sleep.rsp) : 0;
  return rbp != 0 || is_to_sleep_on(dump, look) ? capture_sleeping(dump, entry, look, rbp) : -EINVAL;
}

/* Tells what one look at where it sleeps is enough for. */
static enum stackd_dump_sight glance(const struct stackd_dump* dump, const struct stackd_thread_entry* entry) {
  if (dump->options->quiet != STACKD_QUIET_PREFER || stackd_runtimes_have_uninterruptible()) return STACKD_DUMP_READ_ASLEEP;
  struct stackd_task_sleep sleep;
  int error = stackd_task_read_sleep(dump->task_fd, entry->tid, &sleep);
  if (error == -EAGAIN) return STACKD_DUMP_RUNS;
  if (error != 0) return STACKD_DUMP_TO_BE_ASKED;
  return stackd_call_is_restarted(&sleep.call) && !stackd_dump_lacks_room(dump, entry->tid, sleep.rsp)
             ? STACKD_DUMP_TO_BE_ASKED
             : STACKD_DUMP_READ_ASLEEP;
}

enum stackd_dump_sight stackd_dump_leave_asleep(struct stackd_dump* dump, struct stackd_thread_entry* entry) {
  if (dump->options->quiet == STACKD_QUIET_NEVER && !stackd_runtimes_have_uninterruptible()) return STACKD_DUMP_TO_BE_ASKED;
  enum stackd_dump_sight sight = glance(dump, entry);
  if (sight != STACKD_DUMP_READ_ASLEEP) return sight;
  struct stackd_quiet_look look;
  for (int torn = 0; torn < QUIET_TRIES;) {
    int error = stackd_quiet_begin(&look, dump->task_fd, entry->tid);
    if (error != 0) return error == -EAGAIN ? STACKD_DUMP_RUNS : STACKD_DUMP_TO_BE_ASKED;
    error = read_asleep(dump, entry, &look);
    stackd_quiet_end(&look);
    if (error == -EINVAL) return STACKD_DUMP_TO_BE_ASKED;
    if (error == -EAGAIN) {
      torn++;
    } else if (error == 0 || !make_room_for(dump, entry)) {
      stackd_dump_set_state(dump, entry, error == 0 ? STACKD_THREAD_DONE : STACKD_THREAD_NO_SLOT);
      entry->read_asleep = 1;
      return STACKD_DUMP_READ_ASLEEP;
    }
  }
  return STACKD_DUMP_RUNS;
}

/* Reads the registers that an unwinder needs, as they are at one instruction of the caller. (getcontext() is not in every C
 * library.) */
__attribute__((always_inline)) static inline void read_registers(uint64_t regs[STACKD_REGISTERS]) {
  __asm__ volatile(
      "mov %%rbx, 3*8(%0)\n\t"
      "mov %%rbp, 6*8(%0)\n\t"
      "mov %%rsp, 7*8(%0)\n\t"
      "mov %%r12, 12*8(%0)\n\t"
      "mov %%r13, 13*8(%0)\n\t"
      "mov %%r14, 14*8(%0)\n\t"
      "mov %%r15, 15*8(%0)\n\t"
      "lea 0(%%rip), %%rax\n\t"
      "mov %%rax, 16*8(%0)"
      :
      : "r"(regs)
      : "rax", "memory");
}

void stackd_dump_capture_helper(const struct stackd_dump* dump, struct stackd_thread_entry* entry) {
  struct stackd_capture capture = begin_capture(dump, dump->helper_tid);
  capture.flags = STACKD_THREAD_OF_AGENT;
  capture.thread_self = stackd_fs_base();
  capture.cpu_ns = stackd_clock_ns(CLOCK_THREAD_CPUTIME_ID);
  stackd_thread_name(capture.name);
  read_registers(capture.regs);
  int error = stackd_capture_write(&capture);
  stackd_dump_set_state(dump, entry, error == 0 ? STACKD_THREAD_DONE : STACKD_THREAD_NO_SLOT);
}
