/* Which threads were asked for a stack, and whether they answered. The memory is private; the helper, which asks, and the
 * handlers, which answer, share it. A signal carries the index of its entry and the number of the dump, so that a handler
 * needs no search. A signal that comes late finds an entry that no longer waits for it.
 *
 *     IDLE --(helper: sends)--> ASKED --(handler)--> BUSY --(handler)--> DONE | NO_SLOT | FAULT
 *                                 |
 *                                 +-----(helper: gives up)----> IDLE     (a handler that comes later finds IDLE: late)
 *
 * Each arrow is a compare-and-swap on one 64-bit word that holds the state and the number of the dump.
 */
#ifndef STACKD_THREAD_TABLE_H_
#define STACKD_THREAD_TABLE_H_

#include <stdbool.h>
#include <stdint.h>

#include "agent/sys/syscalls.h"

enum stackd_thread_state {
  STACKD_THREAD_IDLE = 0,
  STACKD_THREAD_ASKED = 1,
  STACKD_THREAD_BUSY = 2,
  STACKD_THREAD_DONE = 3,
  STACKD_THREAD_NO_SLOT = 4,
  STACKD_THREAD_FAULT = 5, /* the handler could not run: no room on the alternate stack */
};

struct stackd_thread_entry {
  uint64_t state; /* seq << 8 | stackd_thread_state */
  uint32_t tid;
  uint32_t max_stack_bytes; /* a multiple of 8 */
  /* The helper's own notes. */
  uint32_t status;     /* stackd_thread_status once it is known why there is no answer; else 0 */
  char kernel_state;   /* as procfs gave it with `status` */
  uint8_t deferred;    /* not asked yet: it blocked the signal, or was to be read asleep and ran */
  uint8_t read_asleep; /* by the helper: whether it takes the signal is not known */
  uint8_t refusals;    /* answers NO_SLOT */
  uint8_t is_running;  /* it was seen to run, at `looked_ns`: then it had this run count and this CPU time */
  uint8_t has_run;     /* since then */
  uint64_t run_count;
  uint64_t cpu_ns;
  uint64_t looked_ns;
};

struct stackd_thread_table {
  uint32_t capacity;
  struct stackd_thread_entry entries[];
};

static inline uint64_t stackd_thread_word(uint32_t seq, enum stackd_thread_state state) {
  return (uint64_t)seq << 8 | state;
}

/* A table with room for `count`, or NULL without memory. Entries keep their contents when it grows; a smaller table stays
 * mapped, since a late handler may hold it. Helper only, NOT SIGNAL-SAFE. */
struct stackd_thread_table* stackd_thread_table_reserve(uint32_t count);

/* Whether `tid` is that of one of the first `count` entries. `*at` says where it most likely is, from 0 to `count`, and is
 * then behind it. The kernel lists threads in the order in which they began, so that most are found at once. Not all: when
 * a thread exits while it is listed, the kernel goes on by position, past some that are there. When these are listed the
 * next time, they come out of order. Helper only. */
bool stackd_thread_is_known(const struct stackd_thread_table* table, uint32_t count, uint32_t tid, uint32_t* at);

/* In the child of a fork, where the parent's questions wait for no thread. */
void stackd_thread_table_reset_after_fork(void);

/* Claims entry `index` for the calling thread `tid`; NULL if the signal came late. HANDLER ONLY. */
struct stackd_thread_entry* stackd_thread_claim(uint32_t index, uint32_t seq, uint32_t tid) STACKD_HANDLER;

/* Ends what stackd_thread_claim began, and wakes the helper if it waits. HANDLER ONLY. */
void stackd_thread_answer(struct stackd_thread_entry* entry, uint32_t seq, enum stackd_thread_state result) STACKD_HANDLER;

/* Answers FAULT for a thread that may make no system call, not even to wake the helper, which looks by itself soon.
 * SIGNAL-SAFE. */
void stackd_thread_refuse(uint32_t index, uint32_t seq) STACKD_HANDLER;

/* Helper: takes the question back; false if the handler was there first (BUSY or an answer). */
bool stackd_thread_give_up(struct stackd_thread_entry* entry, uint32_t seq);

/* How many answers there were in the life of the process; wraps. Any thread. */
uint32_t stackd_thread_answers(void);

/* Helper: waits until stackd_thread_answers() has reached `target`, at most `timeout_ns`. Only the answer that reaches it
 * makes the wake call: a wake for each would cost two context switches a thread. */
void stackd_thread_wait_answers(uint32_t target, uint64_t timeout_ns);

#endif /* STACKD_THREAD_TABLE_H_ */
