#include "agent/dump/dump.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "agent/capture/capture.h"
#include "agent/capture/context.h"
#include "agent/dump/command.h"
#include "agent/dump/procfs_task.h"
#include "agent/dump/quiet_read.h"
#include "agent/dump/thread_table.h"
#include "agent/maps/code_ranges.h"
#include "agent/runtimes/runtimes.h"
#include "agent/signals/altstack.h"
#include "agent/signals/dump_signal.h"
#include "agent/signals/exec_gate.h"
#include "agent/signals/repeat_call.h"
#include "agent/sys/fork_reset.h"
#include "agent/sys/kernel.h"
#include "agent/sys/private_fd.h"

#define MS 1000000ull

/* A map younger than this serves another dump: reading maps of a process with thousands of threads takes milliseconds. */
#define MAPS_AGE_NS (100 * MS)
/* Questions in flight: of all threads one in 16, within these bounds. Threads that are woken in the middle of each other's
 * handlers take each other's CPU away. With 8 the 99th percentile of the pause is a quarter of that with 64. Where there
 * are many threads, a short dump is worth more: with 64 it takes three quarters of the time. */
#define LEAST_WINDOW 8u
#define WINDOW 64u
/* Where hundreds of threads compete for few cores, each wait of the helper costs a turn of all of them. */
#define MAX_WINDOW 512u
#define LONG_WAIT_NS (4 * MS)
/* No answer for so long: look at who is missing instead of waiting on. */
#define QUIET_NS (2 * MS)
/* A thread that still sleeps with the signal blocked after this time blocks it for good. Before, it may just be in
 * pthread_create(), which blocks all signals for a moment. */
#define BLOCKED_NS (10 * MS)
/* A thread that runs may be about to unblock it, but not for so long. */
#define BLOCKED_RUNNING_NS (100 * MS)
/* A system call that cannot be interrupted for so long will not end soon (vfork, a dead disk). */
#define UNINTERRUPTIBLE_NS (100 * MS)
/* A thread that has not been seen asleep for so long runs. */
#define AWAKE_NS (20 * MS)
#define QUIET_TRIES 3
/* A thread that has used a processor for so long, nearly without a pause, computes: a signal will hardly meet it in a call.
 */
#define COMPUTES_NS 200000u
/* A thread that runs and sleeps in turns, and was never seen asleep for so long, is signalled all the same. So is one that
 * waits for a processor. */
#define RUNS_AGAIN_NS (10 * MS)
#define NEVER_RUNS_NS (100 * MS)
#define MAX_PASSES 3
/* By then a thread was the only one asked, with half of the ring free: its stack will not fit, so take less of it. */
#define MAX_REFUSALS 8
#define MIN_STACK_BYTES 4096u
/* Below a thread's rsp, where the kernel puts no frame. */
#define RED_ZONE_BYTES 128u
/* A full signal queue from which no thread takes anything. */
#define QUEUE_FULL_WAITS 8

/* Threads that answered the last dump, sorted: they are asked at once. Of all others procfs tells first whether they block
 * the signal. A thread that does is never sent it. The signal would stay queued, survive an exec, and end a program that
 * has no agent and unblocks it. The price, some microseconds a thread, is paid once. */
static uint32_t* answered;
static uint32_t answered_count;
static uint32_t answered_capacity;

/* Threads that blocked it in the last dump: of these one look is enough. */
#define MAX_BLOCKERS 64
static uint32_t blockers[MAX_BLOCKERS];
static uint32_t blocker_count;

static uint64_t maps_read_ns;

struct run {
  struct stackd_job* job;
  const struct stackd_dump_options* options;
  struct stackd_thread_table* table;
  int task_fd;
  int32_t pid;
  uint32_t helper_tid;
  uint32_t count;     /* entries in use */
  uint32_t first;     /* of this pass */
  bool may_interrupt; /* stackd_repeat_prepare() was called */
  uint32_t asked;
  uint32_t answers_before;
  uint32_t window;
  uint64_t begin_ns;
};

void stackd_dump_look_at_maps(const struct stackd_ring* ring, int maps_fd) {
  uint64_t now = stackd_monotonic_ns();
  if (maps_fd < 0 || (maps_read_ns != 0 && now - maps_read_ns < MAPS_AGE_NS)) return;
  /* A handler that began two looks ago still uses the buffer that would be written now. */
  if (!stackd_handler_quiesce(QUIET_NS)) return;
  bool has_new_code = stackd_code_ranges_refresh(maps_fd) > 0;
  if (has_new_code) __atomic_fetch_add(&ring->header->maps_generation, 1, __ATOMIC_RELEASE);
  if (has_new_code || stackd_managed_is_unsettled()) stackd_managed_find_runtimes(maps_fd);
  maps_read_ns = now;
}

/* --- Listing --- */

static bool add_thread(void* context, uint32_t tid) {
  struct run* run = context;
  if (tid == run->options->skip_tid) return true;
  if (run->count == run->table->capacity) {
    struct stackd_thread_table* grown = stackd_thread_table_reserve(run->count + 1);
    if (grown == NULL) return false;
    memcpy(grown->entries, run->table->entries, run->count * sizeof(grown->entries[0]));
    run->table = grown;
  }
  struct stackd_thread_entry* entry = &run->table->entries[run->count++];
  memset(entry, 0, sizeof(*entry));
  entry->max_stack_bytes = run->options->max_stack_bytes;
  __atomic_store_n(&entry->tid, tid, __ATOMIC_RELAXED);
  return true;
}

struct newcomers {
  struct run* run;
  uint32_t known; /* entries of earlier passes */
  uint32_t at;    /* where the next known one most likely is */
};

static bool add_newcomer(void* context, uint32_t tid) {
  struct newcomers* newcomers = context;
  return stackd_thread_is_known(newcomers->run->table, newcomers->known, tid, &newcomers->at) ||
         add_thread(newcomers->run, tid);
}

/* --- Asking --- */

/* A late answer to an earlier dump may have been counted too: never below 0. */
static uint32_t in_flight(const struct run* run) {
  int32_t open = (int32_t)(run->asked - (stackd_thread_answers() - run->answers_before));
  return open > 0 ? (uint32_t)open : 0;
}

/* The value of stackd_thread_answers() at which `count` are still in flight. */
static uint32_t answers_when(const struct run* run, uint32_t count) { return run->answers_before + run->asked - count; }

/* Wakes the reader early when the ring fills up faster than it looks: here, so that no watched thread pays for it. */
static bool make_room(const struct run* run) {
  const struct stackd_ring* ring = run->job->ring;
  if (stackd_ring_free_slots(ring) >= ring->live_slot_count / 2) return true;
  stackd_ring_doorbell(ring);
  return false;
}

/* Before a thread is asked a second time: another "no slot" would only have interrupted it for nothing. */
static void wait_for_room(struct run* run) {
  uint64_t pause_ns = QUIET_NS / 32;
  while (!make_room(run) && !stackd_job_is_over(run->job)) {
    stackd_pause_ns(pause_ns);
    if (pause_ns < QUIET_NS) pause_ns *= 2;
  }
}

/* When the window is full, waits until half of it has answered. Slow or silent threads must not hold up the others, nor may
 * a helper that waits long for a CPU. So each quiet or long spell widens the window. */
static void wait_for_window(struct run* run) {
  while (in_flight(run) >= run->window && !stackd_job_is_over(run->job)) {
    make_room(run);
    uint32_t seen = stackd_thread_answers();
    uint64_t begin_ns = stackd_monotonic_ns();
    stackd_thread_wait_answers(answers_when(run, run->window / 2), QUIET_NS);
    bool quiet = stackd_thread_answers() == seen;
    if (quiet || stackd_monotonic_ns() - begin_ns > LONG_WAIT_NS)
      run->window += run->window < MAX_WINDOW ? run->window : WINDOW;
  }
}

static bool answered_last_time(uint32_t tid) {
  uint32_t low = 0;
  uint32_t high = answered_count;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (answered[middle] == tid) return true;
    if (answered[middle] < tid) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return false;
}

static bool blocked_last_time(uint32_t tid) {
  for (uint32_t i = 0; i < blocker_count; i++) {
    if (blockers[i] == tid) return true;
  }
  return false;
}

static uint64_t signal_bit(const struct run* run) { return 1ull << (run->options->dump_signal - 1); }

/* Whether the thread may be sent the signal; if not, its status is set or it is deferred. */
static bool may_ask(struct run* run, struct stackd_thread_entry* entry, bool last_chance) {
  struct stackd_task_status status;
  int error = stackd_task_read_status(run->task_fd, entry->tid, &status);
  if (error == -ENOENT || error == -ESRCH || (error == 0 && (status.state == 'Z' || status.state == 'X'))) {
    entry->status = STACKD_STATUS_EXITED;
    return false;
  }
  if (error != 0) {
    /* No fd is free, say. It may block the signal, so it is not asked. */
    entry->status = STACKD_STATUS_TIMED_OUT;
    return false;
  }
  entry->kernel_state = status.state;
  if (status.state == 'T' || status.state == 't') {
    entry->status = STACKD_STATUS_STOPPED;
    return false;
  }
  bool blocks = ((status.signals_blocked | status.signals_pending) & signal_bit(run)) != 0;
  if (blocks && last_chance) entry->status = STACKD_STATUS_SIGNAL_BLOCKED;
  entry->deferred = blocks;
  return !blocks;
}

/* A thread that calls exec is left alone (exec_gate.h). */
static int send_signal(struct run* run, uint32_t tid, uint32_t index) {
  while (!stackd_exec_gate_enter()) {
    if (stackd_job_is_over(run->job)) return -ESRCH;
    stackd_pause_ns(MS);
  }
  int error = stackd_send_dump_signal(run->options->dump_signal, run->pid, tid, index, run->job->seq);
  stackd_exec_gate_leave();
  return error;
}

/* With PREFER a signal meets a thread in a call only if that ran a moment before. With NEVER it meets it each time: a
 * timeout that began anew in each dump would never end. */
static void prepare_to_interrupt(struct run* run) {
  if (run->may_interrupt) return;
  run->may_interrupt = true;
  stackd_repeat_prepare(run->options->quiet == STACKD_QUIET_NEVER ? 0 : STACKD_REPEAT_ANEW_S);
}

static void send_question(struct run* run, uint32_t index) {
  prepare_to_interrupt(run);
  struct stackd_thread_entry* entry = &run->table->entries[index];
  uint32_t seq = run->job->seq;
  __atomic_store_n(&entry->state, stackd_thread_word(seq, STACKD_THREAD_ASKED), __ATOMIC_RELEASE);
  run->asked++;
  for (int waits = 0;; waits++) {
    int error = send_signal(run, entry->tid, index);
    if (error == 0) return;
    bool queue_full = error == -EAGAIN;
    if (queue_full && in_flight(run) > 1 && waits < QUEUE_FULL_WAITS && !stackd_job_is_over(run->job)) {
      /* Each answer takes a signal off the queue. */
      stackd_thread_wait_answers(stackd_thread_answers() + 1, QUIET_NS);
      continue;
    }
    stackd_thread_give_up(entry, seq);
    run->asked--;
    entry->status = queue_full ? STACKD_STATUS_SIGNAL_QUEUE_FULL : STACKD_STATUS_EXITED;
    return;
  }
}

/* --- Threads that do not answer --- */

/* A capture that the helper makes, but for registers, name and flags. */
static struct stackd_capture begin_capture(const struct run* run, uint32_t tid) {
  struct stackd_capture capture;
  memset(&capture, 0, sizeof(capture));
  capture.begin_ns = stackd_monotonic_ns();
  capture.ring = run->job->ring;
  capture.ranges = stackd_code_ranges_current();
  capture.filter = stackd_filter_choose();
  capture.seq = run->job->seq;
  capture.tid = tid;
  capture.pid = run->pid;
  capture.max_stack_bytes = run->options->max_stack_bytes;
  return capture;
}

/* A thread that sleeps is read by us: of its registers rsp and rip are known, and rbp may be (0: is not). Where no status
 * comes for it besides, it counts as captured. 0; -EAGAIN if it ran meanwhile, so that the copy was torn; -ENOSPC. */
static int capture_sleeping(const struct run* run, const struct stackd_thread_entry* entry,
                            const struct stackd_quiet_look* look, uint64_t rbp) {
  struct stackd_capture capture = begin_capture(run, entry->tid);
  capture.flags = STACKD_THREAD_BY_HELPER;
  capture.max_stack_bytes = entry->max_stack_bytes;
  capture.cpu_ns = look->cpu_ns;
  capture.thread_self = stackd_quiet_thread_self(entry->tid);
  stackd_task_read_name(run->task_fd, entry->tid, capture.name);
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

/* Reads a thread that has a status as far as it can be read. */
static void capture_where_it_is(const struct run* run, const struct stackd_thread_entry* entry) {
  struct stackd_quiet_look look;
  for (int tries = 0; tries < QUIET_TRIES && stackd_quiet_begin(&look, run->task_fd, entry->tid) == 0; tries++) {
    int error = capture_sleeping(run, entry, &look, 0);
    stackd_quiet_end(&look);
    if (error != -EAGAIN) return;
  }
}

/* Whether a thread that sleeps at `rsp` has too little stack left for a signal. The kernel ends a program in which its
 * frame does not fit. The main thread's stack grows. */
static bool lacks_room(const struct run* run, uint32_t tid, uint64_t rsp) {
  if (stackd_altstack_is_everywhere() || tid == (uint32_t)run->pid) return false;
  const struct stackd_code_ranges* ranges = stackd_code_ranges_current();
  if (ranges == NULL) return false;
  struct stackd_interval stack = stackd_writable_mapping(ranges, rsp);
  uint64_t needed_bytes = RED_ZONE_BYTES + stackd_signal_frame_bytes() + STACKD_CAPTURE_STACK_BYTES;
  return stack.end != 0 && rsp - stack.start < needed_bytes;
}

/* Whether a thread that sleeps there is to be left asleep. */
static bool is_to_sleep_on(const struct run* run, const struct stackd_quiet_look* look) {
  const struct stackd_syscall* call = &look->sleep.call;
  if (run->options->quiet == STACKD_QUIET_NEVER || look->turns_fd < 0 || (call->known & STACKD_SYSCALL_KNOWN) == 0)
    return false;
  bool is_restarted = stackd_call_is_restarted(call) && !lacks_room(run, look->tid, look->sleep.rsp);
  if (run->options->quiet == STACKD_QUIET_PREFER && is_restarted) return false;
  struct stackd_task_status status;
  return !stackd_call_may_be_uninterruptible(call) ||
         (stackd_task_read_status(run->task_fd, look->tid, &status) == 0 && status.state == 'S');
}

/* Waits, after a record that did not fit, until there is room for another one. False if the daemon waits for it no more. */
static bool make_room_for(struct run* run, struct stackd_thread_entry* entry) {
  if (++entry->refusals > MAX_REFUSALS && entry->max_stack_bytes > MIN_STACK_BYTES) entry->max_stack_bytes /= 2;
  wait_for_room(run);
  return !stackd_job_is_over(run->job);
}

enum sight {
  READ_ASLEEP,
  TO_BE_ASKED, /* a signal does no harm where it sleeps, or it cannot be read there */
  RUNS,
};

/* -EAGAIN: it ran meanwhile. -EINVAL: it is not to be read asleep. -ENOSPC: no room in the ring. */
static int read_asleep(const struct run* run, const struct stackd_thread_entry* entry,
                       const struct stackd_quiet_look* look) {
  bool may_not_interrupt = stackd_runtimes_have_uninterruptible();
  uint64_t rbp = may_not_interrupt ? stackd_runtimes_must_not_interrupt(&look->sleep.call, look->sleep.rsp) : 0;
  return rbp != 0 || is_to_sleep_on(run, look) ? capture_sleeping(run, entry, look, rbp) : -EINVAL;
}

/* Tells what one look at where it sleeps is enough for. */
static enum sight glance(const struct run* run, const struct stackd_thread_entry* entry) {
  if (run->options->quiet != STACKD_QUIET_PREFER || stackd_runtimes_have_uninterruptible()) return READ_ASLEEP;
  struct stackd_task_sleep sleep;
  int error = stackd_task_read_sleep(run->task_fd, entry->tid, &sleep);
  if (error == -EAGAIN) return RUNS;
  if (error != 0) return TO_BE_ASKED;
  return stackd_call_is_restarted(&sleep.call) && !lacks_room(run, entry->tid, sleep.rsp) ? TO_BE_ASKED : READ_ASLEEP;
}

/* Reads a thread whose caller would see an interruption, and leaves it asleep: also where that must wait for room in the
 * ring. */
static enum sight leave_asleep(struct run* run, struct stackd_thread_entry* entry) {
  if (run->options->quiet == STACKD_QUIET_NEVER && !stackd_runtimes_have_uninterruptible()) return TO_BE_ASKED;
  enum sight sight = glance(run, entry);
  if (sight != READ_ASLEEP) return sight;
  struct stackd_quiet_look look;
  for (int torn = 0; torn < QUIET_TRIES;) {
    int error = stackd_quiet_begin(&look, run->task_fd, entry->tid);
    if (error != 0) return error == -EAGAIN ? RUNS : TO_BE_ASKED;
    error = read_asleep(run, entry, &look);
    stackd_quiet_end(&look);
    if (error == -EINVAL) return TO_BE_ASKED;
    if (error == -EAGAIN) {
      torn++;
    } else if (error == 0 || !make_room_for(run, entry)) {
      enum stackd_thread_state state = error == 0 ? STACKD_THREAD_DONE : STACKD_THREAD_NO_SLOT;
      __atomic_store_n(&entry->state, stackd_thread_word(run->job->seq, state), __ATOMIC_RELAXED);
      entry->read_asleep = 1;
      return READ_ASLEEP;
    }
  }
  return RUNS;
}

/* The CPU time of another thread, exact where it runs at this moment. */
static uint64_t cpu_ns_of(uint32_t tid) {
  /* The numbers of clock_getcpuclockid(): a clock of a thread, which goes by what the scheduler counts. */
  const clockid_t kOfThread = 4, kOfScheduler = 2;
  return stackd_clock_ns((clockid_t)(~tid << 3) | kOfThread | kOfScheduler);
}

/* Whether a thread that was seen to run is one that computes. One that was only woken has the signal that woke it before
 * it, and ours would come first: sigsuspend() would return without it. One that runs for a moment may be about to sleep
 * again, in a call that a signal would end. Both are looked at again. */
static bool computes(const struct run* run, struct stackd_thread_entry* entry) {
  uint64_t now_ns = stackd_monotonic_ns();
  uint64_t passed_ns = now_ns - entry->looked_ns;
  if (entry->is_running && passed_ns < COMPUTES_NS) return false;
  struct stackd_task_turns now;
  int fd = stackd_task_open_turns(run->task_fd, entry->tid);
  int error = fd < 0 ? fd : stackd_task_read_turns(fd, &now);
  if (fd >= 0) stackd_own_fd_drop(fd);
  if (error != 0) return true;
  uint64_t cpu_ns = cpu_ns_of(entry->tid);
  if (entry->is_running) {
    if (now.turns == entry->turns && cpu_ns - entry->cpu_ns >= passed_ns / 2) return true;
    if (now.turns != entry->turns || cpu_ns != entry->cpu_ns) entry->has_run = 1;
  }
  if (now_ns - run->begin_ns >= (entry->has_run ? RUNS_AGAIN_NS : NEVER_RUNS_NS)) return true;
  entry->is_running = 1;
  entry->turns = now.turns;
  entry->cpu_ns = cpu_ns;
  entry->looked_ns = now_ns;
  return false;
}

/* A thread that was not seen asleep where none may be signalled: it is looked at again until `last_chance`. */
static void give_it_time(struct run* run, struct stackd_thread_entry* entry, bool last_chance) {
  struct stackd_task_status status;
  int error = stackd_task_read_status(run->task_fd, entry->tid, &status);
  if (error != 0 || status.state == 'Z' || status.state == 'X') {
    entry->status = error == 0 || error == -ENOENT || error == -ESRCH ? STACKD_STATUS_EXITED : STACKD_STATUS_TIMED_OUT;
    return;
  }
  entry->kernel_state = status.state;
  entry->deferred = 1;
  bool is_stopped = status.state == 'T' || status.state == 't';
  if (is_stopped) entry->status = STACKD_STATUS_STOPPED;
  if (last_chance && !is_stopped) {
    entry->status = status.state == 'D' ? STACKD_STATUS_UNINTERRUPTIBLE : STACKD_STATUS_RUNNING;
  }
}

/* Looks at a thread that is to be signalled whatever it sleeps in. */
static bool sleeps_without_room(const struct run* run, const struct stackd_thread_entry* entry) {
  struct stackd_task_sleep sleep;
  return run->options->quiet == STACKD_QUIET_NEVER && !stackd_altstack_is_everywhere() &&
         stackd_task_read_sleep(run->task_fd, entry->tid, &sleep) == 0 && lacks_room(run, entry->tid, sleep.rsp);
}

static void ask(struct run* run, uint32_t index) {
  struct stackd_thread_entry* entry = &run->table->entries[index];
  enum sight sight = leave_asleep(run, entry);
  if (sight == READ_ASLEEP) return;
  if (run->options->quiet == STACKD_QUIET_ONLY) {
    give_it_time(run, entry, false);
    return;
  }
  if (sight == RUNS && run->options->quiet == STACKD_QUIET_PREFER && !computes(run, entry)) {
    entry->deferred = 1;
    return;
  }
  entry->is_running = 0;
  if (sleeps_without_room(run, entry)) {
    entry->status = STACKD_STATUS_AGENT_FAULT;
    return;
  }
  if (answered_last_time(entry->tid) || may_ask(run, entry, blocked_last_time(entry->tid))) send_question(run, index);
}

static uint64_t blocked_for_good_ns(char kernel_state) { return kernel_state == 'R' ? BLOCKED_RUNNING_NS : BLOCKED_NS; }

static void settle_as(struct run* run, struct stackd_thread_entry* entry, uint32_t status, char kernel_state) {
  if (!stackd_thread_give_up(entry, run->job->seq)) return; /* it answered after all */
  run->asked--;
  entry->status = status;
  entry->kernel_state = kernel_state;
}

/* Looks at a thread that was asked and is silent. */
static void inspect(struct run* run, struct stackd_thread_entry* entry, uint64_t quiet_ns) {
  struct stackd_task_status status;
  int error = stackd_task_read_status(run->task_fd, entry->tid, &status);
  if (error == -ENOENT || error == -ESRCH || (error == 0 && (status.state == 'Z' || status.state == 'X'))) {
    settle_as(run, entry, STACKD_STATUS_EXITED, 0);
  }
  if (error != 0) return;
  if (status.state == 'T' || status.state == 't') settle_as(run, entry, STACKD_STATUS_STOPPED, status.state);
  bool blocks = (status.signals_blocked & signal_bit(run)) != 0;
  if (blocks && quiet_ns >= blocked_for_good_ns(status.state))
    settle_as(run, entry, STACKD_STATUS_SIGNAL_BLOCKED, status.state);
  if (status.state == 'D' && quiet_ns >= UNINTERRUPTIBLE_NS) {
    settle_as(run, entry, STACKD_STATUS_UNINTERRUPTIBLE, status.state);
  }
}

/* A thread that blocked the signal when we wanted to ask it, or ran when we wanted to read it. */
static void inspect_deferred(struct run* run, uint32_t index) {
  struct stackd_thread_entry* entry = &run->table->entries[index];
  if (run->options->quiet == STACKD_QUIET_ONLY) {
    uint64_t patience_ns = entry->kernel_state == 'D' ? UNINTERRUPTIBLE_NS : AWAKE_NS;
    if (leave_asleep(run, entry) != READ_ASLEEP)
      give_it_time(run, entry, stackd_monotonic_ns() - run->begin_ns >= patience_ns);
    return;
  }
  if (entry->is_running) {
    ask(run, index);
    return;
  }
  bool last_chance = stackd_monotonic_ns() - run->begin_ns >= blocked_for_good_ns(entry->kernel_state);
  if (may_ask(run, entry, last_chance)) send_question(run, index);
}

struct unsettled {
  uint32_t silent;  /* deferred, ASKED or BUSY */
  uint32_t running; /* of these, to be looked at again soon */
  uint32_t no_slot; /* could not write: ask again */
};

static struct unsettled look_at_all(struct run* run, uint64_t quiet_ns) {
  struct unsettled result = {0, 0, 0};
  for (uint32_t i = run->first; i < run->count; i++) {
    struct stackd_thread_entry* entry = &run->table->entries[i];
    uint64_t state = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE) & 0xff;
    if (state == STACKD_THREAD_IDLE && entry->deferred && entry->status == 0) {
      inspect_deferred(run, i);
      state = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE) & 0xff;
      if (state == STACKD_THREAD_IDLE && entry->status == 0) result.silent++;
      if (state == STACKD_THREAD_IDLE && entry->is_running) result.running++;
    }
    if (state == STACKD_THREAD_ASKED && quiet_ns >= QUIET_NS) {
      inspect(run, entry, quiet_ns);
      state = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE) & 0xff;
    }
    if (state == STACKD_THREAD_ASKED || state == STACKD_THREAD_BUSY) result.silent++;
    if (state == STACKD_THREAD_NO_SLOT) result.no_slot++;
    if (state == STACKD_THREAD_FAULT) entry->status = STACKD_STATUS_AGENT_FAULT;
  }
  return result;
}

/* --- The helper itself --- */

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

/* Captures the helper itself, which blocks the signal like all others, and needs none. */
static void capture_helper(const struct run* run, struct stackd_thread_entry* entry) {
  struct stackd_capture capture = begin_capture(run, run->helper_tid);
  capture.flags = STACKD_THREAD_OF_AGENT;
  capture.thread_self = stackd_fs_base();
  capture.cpu_ns = stackd_clock_ns(CLOCK_THREAD_CPUTIME_ID);
  stackd_thread_name(capture.name);
  read_registers(capture.regs);
  int error = stackd_capture_write(&capture);
  uint64_t state = stackd_thread_word(run->job->seq, error == 0 ? STACKD_THREAD_DONE : STACKD_THREAD_NO_SLOT);
  __atomic_store_n(&entry->state, state, __ATOMIC_RELAXED);
}

/* --- Until all is settled --- */

static void ask_again(struct run* run) {
  for (uint32_t i = run->first; i < run->count && !stackd_job_is_over(run->job); i++) {
    struct stackd_thread_entry* entry = &run->table->entries[i];
    if ((__atomic_load_n(&entry->state, __ATOMIC_ACQUIRE) & 0xff) != STACKD_THREAD_NO_SLOT) continue;
    /* One at a time when many long stacks compete. */
    wait_for_room(run);
    wait_for_window(run);
    if (run->job->over) return;
    if (entry->tid == run->helper_tid) {
      capture_helper(run, entry);
      continue;
    }
    if (++entry->refusals > MAX_REFUSALS && entry->max_stack_bytes > MIN_STACK_BYTES) entry->max_stack_bytes /= 2;
    send_question(run, i);
  }
}

static void give_up_rest(struct run* run) {
  for (uint32_t i = run->first; i < run->count; i++) {
    struct stackd_thread_entry* entry = &run->table->entries[i];
    uint64_t state = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE) & 0xff;
    if (state == STACKD_THREAD_NO_SLOT) entry->status = STACKD_STATUS_RING_FULL;
    if (state == STACKD_THREAD_FAULT) entry->status = STACKD_STATUS_AGENT_FAULT;
    if (state == STACKD_THREAD_BUSY) entry->status = STACKD_STATUS_TIMED_OUT;
    if (state == STACKD_THREAD_IDLE && entry->status == 0) {
      bool is_blocked = entry->deferred && !entry->is_running && run->options->quiet != STACKD_QUIET_ONLY;
      entry->status = is_blocked ? STACKD_STATUS_SIGNAL_BLOCKED : STACKD_STATUS_TIMED_OUT;
    }
    if (state != STACKD_THREAD_ASKED) continue;
    inspect(run, entry, UINT64_MAX);
    settle_as(run, entry, STACKD_STATUS_TIMED_OUT, 0);
  }
}

static void settle(struct run* run) {
  uint64_t last_answer_ns = stackd_monotonic_ns();
  uint32_t seen = stackd_thread_answers();
  uint64_t wait_ns = QUIET_NS;
  uint64_t pause_ns = QUIET_NS;
  while (!stackd_job_is_over(run->job)) {
    uint64_t quiet_ns = stackd_monotonic_ns() - last_answer_ns;
    if (in_flight(run) == 0 || quiet_ns >= QUIET_NS) {
      struct unsettled unsettled = look_at_all(run, quiet_ns);
      if (unsettled.silent == 0 && unsettled.no_slot == 0) return;
      pause_ns = unsettled.running > 0 ? COMPUTES_NS : QUIET_NS;
      if (unsettled.no_slot > 0) {
        run->window = run->window > 1 ? run->window / 2 : 1;
        ask_again(run);
        if (unsettled.silent == 0) last_answer_ns = stackd_monotonic_ns();
      }
      if (quiet_ns >= QUIET_NS && wait_ns < 8 * QUIET_NS) wait_ns *= 2;
    }
    if (in_flight(run) == 0) {
      stackd_pause_ns(pause_ns);
    } else {
      stackd_thread_wait_answers(answers_when(run, 0), wait_ns);
    }
    uint32_t answers = stackd_thread_answers();
    if (answers != seen) {
      seen = answers;
      last_answer_ns = stackd_monotonic_ns();
      wait_ns = QUIET_NS;
    }
  }
  give_up_rest(run);
}

/* --- Statuses --- */

static void write_batch(const struct run* run, const struct stackd_status_record* batch) {
  struct stackd_ring_writer writer;
  struct stackd_status_record* record = stackd_job_begin_record(run->job, &writer, STACKD_RECORD_STATUS, sizeof(*batch));
  /* The daemon sees that threads_listed is more than it got, and says so. */
  if (record == NULL) return;
  record->seq = batch->seq;
  record->entry_count = batch->entry_count;
  memcpy(record->entries, batch->entries, batch->entry_count * sizeof(batch->entries[0]));
  stackd_ring_commit(&writer);
}

static bool can_be_read(uint32_t status) {
  return status == STACKD_STATUS_SIGNAL_BLOCKED || status == STACKD_STATUS_UNINTERRUPTIBLE ||
         status == STACKD_STATUS_STOPPED || status == STACKD_STATUS_SIGNAL_QUEUE_FULL ||
         status == STACKD_STATUS_AGENT_FAULT;
}

static void write_statuses(struct run* run) {
  struct stackd_status_record batch;
  memset(&batch, 0, sizeof(batch));
  batch.seq = run->job->seq;
  for (uint32_t i = 0; i < run->count; i++) {
    const struct stackd_thread_entry* entry = &run->table->entries[i];
    if (entry->status == 0) continue;
    /* The daemon accounts for the rest itself. */
    if (stackd_job_is_forgotten(run->job)) return;
    if (can_be_read(entry->status)) capture_where_it_is(run, entry);
    struct stackd_thread_status_entry* out = &batch.entries[batch.entry_count++];
    memset(out, 0, sizeof(*out));
    out->tid = entry->tid;
    out->status = (uint8_t)entry->status;
    out->state = entry->kernel_state;
    bool in_time = entry->status != STACKD_STATUS_TIMED_OUT || stackd_monotonic_ns() < run->job->deadline_ns;
    if (entry->status != STACKD_STATUS_EXITED && in_time) {
      stackd_task_read_name(run->task_fd, entry->tid, out->name);
      stackd_task_read_wait_channel(run->task_fd, entry->tid, out->wait_channel);
    }
    if (batch.entry_count == STACKD_STATUS_ENTRIES) {
      write_batch(run, &batch);
      batch.entry_count = 0;
    }
  }
  if (batch.entry_count > 0) write_batch(run, &batch);
}

static void remember_answered(const struct run* run) {
  if (run->count > answered_capacity) {
    if (answered != NULL) stackd_unmap(answered, answered_capacity * sizeof(*answered));
    answered = stackd_map_private(run->table->capacity * sizeof(*answered));
    answered_capacity = answered != NULL ? run->table->capacity : 0;
  }
  answered_count = 0;
  blocker_count = 0;
  if (answered == NULL) return;
  for (uint32_t i = 0; i < run->count; i++) {
    const struct stackd_thread_entry* entry = &run->table->entries[i];
    if (entry->status == STACKD_STATUS_SIGNAL_BLOCKED && blocker_count < MAX_BLOCKERS) {
      blockers[blocker_count++] = entry->tid;
    }
    if (entry->status != 0 || entry->read_asleep) continue;
    /* tids come nearly sorted. */
    uint32_t at = answered_count++;
    for (; at > 0 && answered[at - 1] > entry->tid; at--) answered[at] = answered[at - 1];
    answered[at] = entry->tid;
  }
}

static void ask_pass(struct run* run) {
  struct stackd_thread_entry* helper = NULL;
  for (uint32_t i = run->first; i < run->count; i++) {
    struct stackd_thread_entry* entry = &run->table->entries[i];
    if (entry->tid == run->helper_tid) {
      helper = entry;
      continue;
    }
    wait_for_window(run);
    if (run->job->over) break;
    ask(run, i);
  }
  /* While the others answer. */
  if (helper != NULL) capture_helper(run, helper);
  settle(run);
}

static uint32_t first_window(uint32_t thread_count) {
  uint32_t window = thread_count / 16;
  if (window < LEAST_WINDOW) return LEAST_WINDOW;
  return window < WINDOW ? window : WINDOW;
}

static void dump_threads(struct run* run) {
  run->window = first_window(run->count);
  uint64_t thread_count = stackd_task_count(run->task_fd);
  for (int pass = 0;; pass++) {
    stackd_job_publish_listed(run->job, run->count);
    ask_pass(run);
    bool exited = false;
    for (uint32_t i = run->first; i < run->count; i++) exited |= run->table->entries[i].status == STACKD_STATUS_EXITED;
    uint64_t count_now = stackd_task_count(run->task_fd);
    bool complete = run->options->only_tid != 0 || (!exited && count_now == thread_count);
    if (run->job->over || complete || pass + 1 == MAX_PASSES) break;
    thread_count = count_now;
    struct newcomers newcomers = {run, run->count, 0};
    run->first = run->count;
    if (stackd_proc_list(run->task_fd, add_newcomer, &newcomers) != 0 || run->first == run->count) break;
  }
  stackd_job_publish_listed(run->job, run->count);
  write_statuses(run);
  if (run->options->only_tid == 0) remember_answered(run);
}

void stackd_dump_reset_after_fork(void) {
  STACKD_RESET(answered, NULL);
  STACKD_RESET(answered_count, 0);
  STACKD_RESET(answered_capacity, 0);
  STACKD_RESET(blocker_count, 0);
  STACKD_RESET(maps_read_ns, 0);
}

/* 0 or a negative errno. */
static int list_threads(struct run* run) {
  if (run->table == NULL) return -ENOMEM;
  if (run->task_fd < 0) return run->task_fd;
  uint32_t only = run->options->only_tid;
  if (only == 0) return stackd_proc_list(run->task_fd, add_thread, run);
  return !stackd_task_exists(run->task_fd, only) || add_thread(run, only) ? 0 : -ENOMEM;
}

void stackd_dump_run(struct stackd_job* job, const struct stackd_dump_options* options) {
  struct run run;
  memset(&run, 0, sizeof(run));
  run.job = job;
  run.options = options;
  run.table = stackd_thread_table_reserve(1);
  run.task_fd = stackd_task_open();
  run.pid = stackd_getpid();
  run.helper_tid = (uint32_t)stackd_gettid();
  run.answers_before = stackd_thread_answers();
  run.begin_ns = stackd_monotonic_ns();
  int error = list_threads(&run);
  if (error == 0) dump_threads(&run);
  if (run.task_fd >= 0) stackd_own_fd_drop(run.task_fd);
  /* Threads that were not listed (no fd was free) the daemon sees in procfs. */
  stackd_job_publish_done(job, error);
}
