/* A lock for what the agent's own thread shares with threads of the program. The C library's locks are plain stores in a
 * process that has one thread as far as that library knows. To be taken in a handler only if no thread can be interrupted
 * by that handler while it has the lock. */
#ifndef STACKD_LOCK_H_
#define STACKD_LOCK_H_

#include "agent/sys/fork_reset.h"
#include "agent/sys/kernel.h"

/* 0: free; 1: taken; 2: taken, and a thread may wait. */
struct stackd_lock {
  uint32_t word;
};

STACKD_HANDLER_INLINE void stackd_lock(struct stackd_lock* lock) {
  uint32_t is_free = 0;
  if (__atomic_compare_exchange_n(&lock->word, &is_free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return;
  while (__atomic_exchange_n(&lock->word, 2, __ATOMIC_ACQUIRE) != 0) {
    stackd_futex_wait(&lock->word, 2, NULL, FUTEX_PRIVATE_FLAG);
  }
}

STACKD_HANDLER_INLINE int stackd_try_lock(struct stackd_lock* lock) {
  uint32_t is_free = 0;
  return __atomic_compare_exchange_n(&lock->word, &is_free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

STACKD_HANDLER_INLINE void stackd_unlock(struct stackd_lock* lock) {
  if (__atomic_exchange_n(&lock->word, 0, __ATOMIC_RELEASE) == 2) stackd_futex_wake(&lock->word, FUTEX_PRIVATE_FLAG);
}

/* Takes it with signals blocked, so that no handler of this thread finds the lock taken by what it has interrupted. SIGSYS
 * stays open: blocked, it would kill where a sandbox answers refused calls by it. The mask is for
 * stackd_unlock_and_restore(). */
STACKD_HANDLER_INLINE uint64_t stackd_lock_and_block(struct stackd_lock* lock) {
  uint64_t mask = stackd_set_signal_mask(~(1ull << (SIGSYS - 1)));
  stackd_lock(lock);
  return mask;
}

STACKD_HANDLER_INLINE void stackd_unlock_and_restore(struct stackd_lock* lock, uint64_t mask) {
  stackd_unlock(lock);
  stackd_set_signal_mask(mask);
}

/* Frees it in the child of a fork, where the thread that had it is not. */
STACKD_HANDLER_INLINE void stackd_lock_reset(struct stackd_lock* lock) { STACKD_RESET(lock->word, 0); }

#endif /* STACKD_LOCK_H_ */
