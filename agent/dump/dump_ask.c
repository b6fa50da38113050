#include "agent/dump/dump_run.h"
#include "agent/dump/quiet_read.h"
#include "agent/signals/altstack.h"
#include "agent/signals/dump_signal.h"
#include "agent/signals/exec_gate.h"
#include "agent/signals/repeat_call.h"
#include "agent/sys/fork_reset.h"
#include "agent/sys/kernel.h"
#include "agent/sys/private_fd.h"

/* A thread that still sleeps with the signal blocked after this time blocks it for good. Before, it may just be in
 * pthread_create(), which blocks all signals for a moment. */
#define BLOCKED_NS (10 * STACKD_MS)
/* A thread that runs may be about to unblock it, but not for so long. */
#define BLOCKED_RUNNING_NS (100 * STACKD_MS)
/* A thread that has not been seen asleep for so long runs. */
#define AWAKE_NS (20 * STACKD_MS)
/* A thread that runs and sleeps in turns, and was never seen asleep for so long, is signalled all the same. So is one that
 * waits for a processor. */
#define RUNS_AGAIN_NS (10 * STACKD_MS)
#define NEVER_RUNS_NS (100 * STACKD_MS)
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

/* Reads what the kernel says of the thread. False if it has ended or cannot be read: then its status is set. */
static bool read_status(const struct stackd_dump* dump, struct stackd_thread_entry* entry,
                        struct stackd_task_status* status) {
  int error = stackd_task_read_status(dump->task_fd, entry->tid, status);
  if (error == 0 && !stackd_dump_is_gone(error, status)) {
    entry->kernel_state = status->state;
    return true;
  }
  /* Where no fd is free, say, the thread may block the signal. So it is not asked. */
  entry->status = stackd_dump_is_gone(error, status) ? STACKD_STATUS_EXITED : STACKD_STATUS_TIMED_OUT;
  return false;
}

/* Whether the thread may be sent the signal; if not, its status is set or it is deferred. */
static bool may_ask(struct stackd_dump* dump, struct stackd_thread_entry* entry, bool last_chance) {
  struct stackd_task_status status;
  if (!read_status(dump, entry, &status)) return false;
  if (stackd_dump_is_stopped(&status)) {
    entry->status = STACKD_STATUS_STOPPED;
    return false;
  }
  bool blocks = ((status.signals_blocked | status.signals_pending) & stackd_dump_signal_bit(dump)) != 0;
  if (blocks && last_chance) entry->status = STACKD_STATUS_SIGNAL_BLOCKED;
  entry->deferred = blocks;
  return !blocks;
}

/* A thread that calls exec is left alone (exec_gate.h). */
static int send_signal(struct stackd_dump* dump, uint32_t tid, uint32_t index) {
  while (!stackd_exec_gate_enter()) {
    if (stackd_job_is_over(dump->job)) return -ESRCH;
    stackd_pause_ns(STACKD_MS);
  }
  int error = stackd_send_dump_signal(dump->options->dump_signal, dump->pid, tid, index, dump->job->seq);
  stackd_exec_gate_leave();
  return error;
}

/* With PREFER a signal meets a thread in a call only if that ran a moment before. So little of its timeout had passed,
 * however long that is. With NEVER it meets it each time: a timeout that began anew in each dump would never end. */
static void prepare_to_interrupt(struct stackd_dump* dump) {
  if (dump->may_interrupt) return;
  dump->may_interrupt = true;
  stackd_repeat_prepare(dump->options->quiet == STACKD_QUIET_NEVER ? 0 : STACKD_REPEAT_EACH_S);
}

void stackd_dump_send_question(struct stackd_dump* dump, uint32_t index) {
  prepare_to_interrupt(dump);
  struct stackd_thread_entry* entry = &dump->table->entries[index];
  uint32_t seq = dump->job->seq;
  stackd_dump_set_state(dump, entry, STACKD_THREAD_ASKED);
  dump->asked++;
  for (int waits = 0;; waits++) {
    int error = send_signal(dump, entry->tid, index);
    if (error == 0) return;
    bool queue_full = error == -EAGAIN;
    if (queue_full && stackd_dump_in_flight(dump) > 1 && waits < QUEUE_FULL_WAITS && !stackd_job_is_over(dump->job)) {
      /* Each answer takes a signal off the queue. */
      stackd_thread_wait_answers(stackd_thread_answers() + 1, STACKD_DUMP_QUIET_NS);
      continue;
    }
    stackd_thread_give_up(entry, seq);
    dump->asked--;
    entry->status = queue_full ? STACKD_STATUS_SIGNAL_QUEUE_FULL : STACKD_STATUS_EXITED;
    return;
  }
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
static bool computes(const struct stackd_dump* dump, struct stackd_thread_entry* entry) {
  uint64_t now_ns = stackd_monotonic_ns();
  uint64_t passed_ns = now_ns - entry->looked_ns;
  if (entry->is_running && passed_ns < STACKD_DUMP_COMPUTES_NS) return false;
  struct stackd_task_schedstat now;
  int fd = stackd_task_open_schedstat(dump->task_fd, entry->tid);
  int error = fd < 0 ? fd : stackd_task_read_schedstat(fd, &now);
  if (fd >= 0) stackd_own_fd_drop(fd);
  if (error != 0) return true;
  uint64_t cpu_ns = cpu_ns_of(entry->tid);
  if (entry->is_running) {
    if (now.run_count == entry->run_count && cpu_ns - entry->cpu_ns >= passed_ns / 2) return true;
    if (now.run_count != entry->run_count || cpu_ns != entry->cpu_ns) entry->has_run = 1;
  }
  if (now_ns - dump->begin_ns >= (entry->has_run ? RUNS_AGAIN_NS : NEVER_RUNS_NS)) return true;
  entry->is_running = 1;
  entry->run_count = now.run_count;
  entry->cpu_ns = cpu_ns;
  entry->looked_ns = now_ns;
  return false;
}

/* A thread that was not seen asleep where none may be signalled: it is looked at again until `last_chance`. */
static void give_it_time(struct stackd_dump* dump, struct stackd_thread_entry* entry, bool last_chance) {
  struct stackd_task_status status;
  if (!read_status(dump, entry, &status)) return;
  entry->deferred = 1;
  if (stackd_dump_is_stopped(&status)) {
    entry->status = STACKD_STATUS_STOPPED;
  } else if (last_chance) {
    entry->status = status.state == 'D' ? STACKD_STATUS_UNINTERRUPTIBLE : STACKD_STATUS_RUNNING;
  }
}

/* Looks at a thread that is to be signalled whatever it sleeps in. */
static bool sleeps_without_room(const struct stackd_dump* dump, const struct stackd_thread_entry* entry) {
  struct stackd_task_sleep sleep;
  return dump->options->quiet == STACKD_QUIET_NEVER && !stackd_altstack_is_everywhere() &&
         stackd_task_read_sleep(dump->task_fd, entry->tid, &sleep) == 0 &&
         stackd_dump_lacks_room(dump, entry->tid, sleep.rsp);
}

void stackd_dump_ask(struct stackd_dump* dump, uint32_t index) {
  struct stackd_thread_entry* entry = &dump->table->entries[index];
  enum stackd_dump_sight sight = stackd_dump_leave_asleep(dump, entry);
  if (sight == STACKD_DUMP_READ_ASLEEP) return;
  if (dump->options->quiet == STACKD_QUIET_ONLY) {
    give_it_time(dump, entry, false);
    return;
  }
  if (sight == STACKD_DUMP_RUNS && dump->options->quiet == STACKD_QUIET_PREFER && !computes(dump, entry)) {
    entry->deferred = 1;
    return;
  }
  entry->is_running = 0;
  if (sleeps_without_room(dump, entry)) {
    entry->status = STACKD_STATUS_AGENT_FAULT;
    return;
  }
  if (answered_last_time(entry->tid) || may_ask(dump, entry, blocked_last_time(entry->tid)))
    stackd_dump_send_question(dump, index);
}

uint64_t stackd_dump_blocked_for_good_ns(char kernel_state) {
  return kernel_state == 'R' ? BLOCKED_RUNNING_NS : BLOCKED_NS;
}

void stackd_dump_ask_deferred(struct stackd_dump* dump, uint32_t index) {
  struct stackd_thread_entry* entry = &dump->table->entries[index];
  if (dump->options->quiet == STACKD_QUIET_ONLY) {
    uint64_t patience_ns = entry->kernel_state == 'D' ? STACKD_DUMP_UNINTERRUPTIBLE_NS : AWAKE_NS;
    if (stackd_dump_leave_asleep(dump, entry) != STACKD_DUMP_READ_ASLEEP)
      give_it_time(dump, entry, stackd_monotonic_ns() - dump->begin_ns >= patience_ns);
    return;
  }
  if (entry->is_running) {
    stackd_dump_ask(dump, index);
    return;
  }
  bool last_chance = stackd_monotonic_ns() - dump->begin_ns >= stackd_dump_blocked_for_good_ns(entry->kernel_state);
  if (may_ask(dump, entry, last_chance)) stackd_dump_send_question(dump, index);
}

void stackd_dump_remember_answered(const struct stackd_dump* dump) {
  if (dump->count > answered_capacity) {
    if (answered != NULL) stackd_unmap(answered, answered_capacity * sizeof(*answered));
    answered = stackd_map_private(dump->table->capacity * sizeof(*answered));
    answered_capacity = answered != NULL ? dump->table->capacity : 0;
  }
  answered_count = 0;
  blocker_count = 0;
  if (answered == NULL) return;
  for (uint32_t i = 0; i < dump->count; i++) {
    const struct stackd_thread_entry* entry = &dump->table->entries[i];
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

void stackd_dump_ask_reset_after_fork(void) {
  STACKD_RESET(answered, NULL);
  STACKD_RESET(answered_count, 0);
  STACKD_RESET(answered_capacity, 0);
  STACKD_RESET(blocker_count, 0);
}
