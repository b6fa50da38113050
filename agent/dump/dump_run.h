/* One dump while it runs, and what its parts give each other. Helper thread only: NOT SIGNAL-SAFE. */
#ifndef STACKD_DUMP_RUN_H_
#define STACKD_DUMP_RUN_H_

#include <errno.h>
#include <stdbool.h>

#include "agent/dump/dump.h"
#include "agent/dump/procfs_task.h"
#include "agent/dump/thread_table.h"

#define STACKD_MS 1000000ull

/* No answer for so long: look at who is missing instead of waiting on. */
#define STACKD_DUMP_QUIET_NS (2 * STACKD_MS)
/* A thread that has used a processor for so long, nearly without a pause, computes: a signal will hardly meet it in a call.
 */
#define STACKD_DUMP_COMPUTES_NS 200000u
/* A system call that cannot be interrupted for so long will not end soon (vfork, a dead disk). */
#define STACKD_DUMP_UNINTERRUPTIBLE_NS (100 * STACKD_MS)

struct stackd_dump {
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
  uint32_t window; /* of questions in flight */
  uint64_t begin_ns;
};

static inline enum stackd_thread_state stackd_dump_state(const struct stackd_thread_entry* entry) {
  return (enum stackd_thread_state)(__atomic_load_n(&entry->state, __ATOMIC_ACQUIRE) & 0xff);
}

static inline void stackd_dump_set_state(const struct stackd_dump* dump, struct stackd_thread_entry* entry,
                                         enum stackd_thread_state state) {
  __atomic_store_n(&entry->state, stackd_thread_word(dump->job->seq, state), __ATOMIC_RELEASE);
}

static inline uint64_t stackd_dump_signal_bit(const struct stackd_dump* dump) {
  return 1ull << (dump->options->dump_signal - 1);
}

/* Whether the thread whose status was read with `error` has ended. */
static inline bool stackd_dump_is_gone(int error, const struct stackd_task_status* status) {
  return error == -ENOENT || error == -ESRCH || (error == 0 && (status->state == 'Z' || status->state == 'X'));
}

static inline bool stackd_dump_is_stopped(const struct stackd_task_status* status) {
  return status->state == 'T' || status->state == 't';
}

/* --- How many questions are in flight (dump_pacing.c) --- */

void stackd_dump_open_window(struct stackd_dump* dump);
uint32_t stackd_dump_in_flight(const struct stackd_dump* dump);

/* Returns the value of stackd_thread_answers() at which `count` are still in flight. */
uint32_t stackd_dump_answers_when(const struct stackd_dump* dump, uint32_t count);

/* Waits before a thread is asked. When the window is full, half of it must have answered. */
void stackd_dump_wait_for_window(struct stackd_dump* dump);

/* Waits, before a thread is asked a second time, until half of the ring is free: another "no slot" would interrupt it for
 * nothing. */
void stackd_dump_wait_for_room(struct stackd_dump* dump);

/* Counts a record that did not fit: after some of them less of the stack is asked for. */
void stackd_dump_count_refusal(struct stackd_thread_entry* entry);

/* --- Threads that the helper reads itself (dump_asleep.c) --- */

enum stackd_dump_sight {
  STACKD_DUMP_READ_ASLEEP,
  STACKD_DUMP_TO_BE_ASKED, /* a signal does no harm where it sleeps, or it cannot be read there */
  STACKD_DUMP_RUNS,
};

/* Reads a thread whose caller would see an interruption, and leaves it asleep: also where that must wait for room in the
 * ring. */
enum stackd_dump_sight stackd_dump_leave_asleep(struct stackd_dump* dump, struct stackd_thread_entry* entry);

/* Whether a thread that sleeps at `rsp` has too little stack left for a signal. */
bool stackd_dump_lacks_room(const struct stackd_dump* dump, uint32_t tid, uint64_t rsp);

/* Reads a thread that has a status as far as it can be read. */
void stackd_dump_capture_where_it_is(const struct stackd_dump* dump, const struct stackd_thread_entry* entry);

/* Captures the helper itself, which blocks the signal like all others, and needs none. */
void stackd_dump_capture_helper(const struct stackd_dump* dump, struct stackd_thread_entry* entry);

/* --- Asking (dump_ask.c) --- */

/* Reads the thread of entry `index` asleep, or sends it the signal. Else it has a status or is deferred. */
void stackd_dump_ask(struct stackd_dump* dump, uint32_t index);

/* Looks again at a thread that blocked the signal when it was to be asked, or ran when it was to be read. */
void stackd_dump_ask_deferred(struct stackd_dump* dump, uint32_t index);

/* Sends the signal. */
void stackd_dump_send_question(struct stackd_dump* dump, uint32_t index);

/* Returns after how long a thread that blocks the signal, in this state of the kernel's, blocks it for good. */
uint64_t stackd_dump_blocked_for_good_ns(char kernel_state);

/* Keeps who answered, for the next dump. */
void stackd_dump_remember_answered(const struct stackd_dump* dump);
void stackd_dump_ask_reset_after_fork(void);

/* --- Settling (dump_settle.c) and telling (dump_status.c) --- */

/* Waits until each thread of this pass has a record or a status, or the dump is over: then the others get a status. */
void stackd_dump_settle(struct stackd_dump* dump);

/* Writes the STATUS records, and reads threads that have one where they are. */
void stackd_dump_write_statuses(struct stackd_dump* dump);

#endif /* STACKD_DUMP_RUN_H_ */
