/* Threads that run and get nowhere: one look cannot tell them from those that work, two can. */
#include <stdatomic.h>

#include "tests/hangs/hang.h"

static pthread_mutex_t accounts_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t orders_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int is_free;

VICTIM_NOINLINE static void await_free(void) {
  while (!atomic_load(&is_free)) {
  }
}

VICTIM_NOINLINE static void* spin_with_lock(void* unused) {
  pthread_mutex_lock(&accounts_lock);
  hang_pass();
  await_free();
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

VICTIM_NOINLINE static void* take_accounts(void* unused) {
  pthread_mutex_lock(&accounts_lock);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void spin_on_atomic(void) {
  hang_thread("spinner", spin_with_lock, NULL);
  hang_await_passed(1);
  hang_thread_in(SYS_futex, "waiter", take_accounts, NULL);
}

typedef struct polite {
  pthread_mutex_t* own;
  pthread_mutex_t* other;
} polite;

/* Gives way whenever the other one is there already, which it always is: both go through the door in step. */
VICTIM_NOINLINE static void* after_you(void* argument) {
  const polite* locks = argument;
  static atomic_llong arrivals, refusals;
  for (long long both = 2;; both += 2) {
    pthread_mutex_lock(locks->own);
    atomic_fetch_add(&arrivals, 1);
    while (atomic_load(&arrivals) < both) {
    }
    if (pthread_mutex_trylock(locks->other) == 0) return NULL;
    atomic_fetch_add(&refusals, 1);
    /* No thread lets go before both have tried. */
    while (atomic_load(&refusals) < both) {
    }
    pthread_mutex_unlock(locks->own);
    if (both == 200) hang_pass();
  }
}

static void livelock(void) {
  static polite one = {&accounts_lock, &orders_lock};
  static polite other = {&orders_lock, &accounts_lock};
  hang_thread("polite-1", after_you, &one);
  hang_thread("polite-2", after_you, &other);
  hang_await_passed(2);
}

static const hang_mode kModes[] = {
    {"livelock", livelock},
    {"spin_on_atomic", spin_on_atomic},
};

int main(int argc, char** argv) { return hang_run(argc, argv, kModes, sizeof kModes / sizeof kModes[0]); }
