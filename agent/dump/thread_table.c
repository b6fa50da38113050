#include "agent/dump/thread_table.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "agent/sys/fork_reset.h"
#include "agent/sys/kernel.h"

static struct stackd_thread_table* _Atomic current;
static uint32_t answers;
static uint32_t helper_waits;
static uint32_t wake_at; /* valid while helper_waits */

void stackd_thread_table_reset_after_fork(void) {
  STACKD_RESET(current, NULL);
  STACKD_RESET(helper_waits, 0);
}

struct stackd_thread_table* stackd_thread_table_reserve(uint32_t count) {
  struct stackd_thread_table* old = atomic_load_explicit(&current, memory_order_relaxed);
  if (old != NULL && old->capacity >= count) return old;
  uint32_t capacity = old != NULL ? old->capacity : 256;
  while (capacity < count) capacity *= 2;
  size_t size_bytes = sizeof(*old) + (size_t)capacity * sizeof(struct stackd_thread_entry);
  struct stackd_thread_table* grown = stackd_map_private(size_bytes);
  if (grown == NULL) return NULL;
  grown->capacity = capacity;
  atomic_store_explicit(&current, grown, memory_order_release);
  return grown;
}

bool stackd_thread_is_known(const struct stackd_thread_table* table, uint32_t count, uint32_t tid, uint32_t* at) {
  for (uint32_t i = 0; i < count; i++) {
    uint32_t index = *at + i;
    if (index >= count) index -= count;
    if (table->entries[index].tid == tid) {
      *at = index + 1;
      return true;
    }
  }
  return false;
}

struct stackd_thread_entry* stackd_thread_claim(uint32_t index, uint32_t seq, uint32_t tid) {
  struct stackd_thread_table* table = atomic_load_explicit(&current, memory_order_acquire);
  if (table == NULL || index >= table->capacity) return NULL;
  struct stackd_thread_entry* entry = &table->entries[index];
  if (__atomic_load_n(&entry->tid, __ATOMIC_RELAXED) != tid) return NULL;
  uint64_t expected = stackd_thread_word(seq, STACKD_THREAD_ASKED);
  bool claimed = __atomic_compare_exchange_n(&entry->state, &expected, stackd_thread_word(seq, STACKD_THREAD_BUSY), false,
                                             __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
  return claimed ? entry : NULL;
}

void stackd_thread_answer(struct stackd_thread_entry* entry, uint32_t seq, enum stackd_thread_state result) {
  uint64_t expected = stackd_thread_word(seq, STACKD_THREAD_BUSY);
  bool answered = __atomic_compare_exchange_n(&entry->state, &expected, stackd_thread_word(seq, result), false,
                                              __ATOMIC_RELEASE, __ATOMIC_RELAXED);
  if (!answered) return; /* that dump is over, and the entry is another's by now */
  uint32_t now = __atomic_add_fetch(&answers, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&helper_waits, __ATOMIC_SEQ_CST) == 0) return;
  if ((int32_t)(now - __atomic_load_n(&wake_at, __ATOMIC_RELAXED)) >= 0) stackd_futex_wake(&answers, FUTEX_PRIVATE_FLAG);
}

void stackd_thread_refuse(uint32_t index, uint32_t seq) {
  struct stackd_thread_table* table = atomic_load_explicit(&current, memory_order_acquire);
  if (table == NULL || index >= table->capacity) return;
  uint64_t expected = stackd_thread_word(seq, STACKD_THREAD_ASKED);
  bool refused =
      __atomic_compare_exchange_n(&table->entries[index].state, &expected, stackd_thread_word(seq, STACKD_THREAD_FAULT),
                                  false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
  if (refused) __atomic_add_fetch(&answers, 1, __ATOMIC_SEQ_CST);
}

bool stackd_thread_give_up(struct stackd_thread_entry* entry, uint32_t seq) {
  uint64_t expected = stackd_thread_word(seq, STACKD_THREAD_ASKED);
  return __atomic_compare_exchange_n(&entry->state, &expected, stackd_thread_word(seq, STACKD_THREAD_IDLE), false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

uint32_t stackd_thread_answers(void) { return __atomic_load_n(&answers, __ATOMIC_ACQUIRE); }

void stackd_thread_wait_answers(uint32_t target, uint64_t timeout_ns) {
  struct timespec timeout = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
  __atomic_store_n(&wake_at, target, __ATOMIC_RELAXED);
  __atomic_store_n(&helper_waits, 1, __ATOMIC_SEQ_CST);
  /* Answers short of the target change the word, so the kernel may refuse to wait: then look again. */
  for (;;) {
    uint32_t now = __atomic_load_n(&answers, __ATOMIC_SEQ_CST);
    if ((int32_t)(now - target) >= 0) break;
    if (stackd_futex_wait(&answers, now, &timeout, FUTEX_PRIVATE_FLAG) != -EAGAIN) break;
  }
  __atomic_store_n(&helper_waits, 0, __ATOMIC_RELAXED);
}
