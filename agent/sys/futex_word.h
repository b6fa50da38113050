/* A futex word of this process that threads wait on until it has a value. SIGNAL-SAFE. */
#ifndef STACKD_FUTEX_WORD_H_
#define STACKD_FUTEX_WORD_H_

#include "agent/sys/kernel.h"

/* Gives the word a value, and wakes the threads that wait for that. */
STACKD_HANDLER_INLINE void stackd_futex_word_set(uint32_t* word, uint32_t value) {
  __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
  stackd_syscall6(SYS_futex, (long)word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT32_MAX, 0, 0, 0);
}

/* Waits until the word is `value`, at most until `end_ns`. */
STACKD_HANDLER_INLINE void stackd_futex_word_await(uint32_t* word, uint32_t value, uint64_t end_ns) {
  for (;;) {
    uint32_t seen = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    uint64_t now_ns = stackd_clock_ns(CLOCK_MONOTONIC);
    if (seen == value || now_ns >= end_ns) return;
    struct timespec timeout = stackd_timespec(end_ns - now_ns);
    stackd_futex_wait(word, seen, &timeout, FUTEX_PRIVATE_FLAG);
  }
}

#endif /* STACKD_FUTEX_WORD_H_ */
