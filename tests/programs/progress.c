/* progress MODE: threads that get on, or do not, for two dumps to tell apart.
 *
 *   deadlock  two threads wait for each other's mutex
 *   stuck     two wait for a mutex whose owner sleeps
 *   spin      one goes round in one function
 *   livelock  two have a mutex each, and try the other's again and again
 *   slow      four hand one mutex around
 *   idle      two wait for work, one for input, one for the time
 */
#include <poll.h>
#include <sched.h>

#include "tests/programs/victim.h"

#define STACK_BYTES (64 << 10)

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t second = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t both_have_one;
static volatile int stop;
static int rounds;

VICTIM_NOINLINE static void* take_both(void* is_second) {
  pthread_mutex_lock(is_second ? &second : &first);
  pthread_barrier_wait(&both_have_one);
  pthread_mutex_lock(is_second ? &first : &second);
  return NULL;
}

VICTIM_NOINLINE static void* sleep_with_lock(void* unused) {
  pthread_mutex_lock(&first);
  for (;;) poll(NULL, 0, -1);
  return unused;
}

VICTIM_NOINLINE static void* wait_for_lock(void* unused) {
  pthread_mutex_lock(&first);
  return unused;
}

VICTIM_NOINLINE static void* spin(void* unused) {
  while (!stop) {
  }
  return unused;
}

VICTIM_NOINLINE static void* try_both(void* is_second) {
  pthread_mutex_t* own = is_second ? &second : &first;
  pthread_mutex_t* other = is_second ? &first : &second;
  /* Neither lets go of its own, so that the test need not hope that they keep missing each other. */
  pthread_mutex_lock(own);
  pthread_barrier_wait(&both_have_one);
  while (pthread_mutex_trylock(other) != 0) sched_yield();
  return NULL;
}

VICTIM_NOINLINE static void* hand_around(void* unused) {
  while (!stop) {
    pthread_mutex_lock(&first);
    usleep(2000);
    ++rounds;
    pthread_mutex_unlock(&first);
    usleep(500);
  }
  return unused;
}

VICTIM_NOINLINE static void* wait_for_work(void* unused) {
  pthread_mutex_lock(&second);
  for (;;) pthread_cond_wait(&never, &second);
  return unused;
}

VICTIM_NOINLINE static void* wait_for_time(void* unused) {
  for (;;) sleep(100000);
  return unused;
}

static victim_thread threads[4];
static int thread_count;

static victim_thread* start(const char* name, void* (*body)(void*), void* argument) {
  victim_thread* thread = &threads[thread_count++];
  victim_start(thread, name, body, argument, STACK_BYTES);
  return thread;
}

static void start_blocked(const char* name, void* (*body)(void*), void* argument, long number) {
  victim_await_syscall(start(name, body, argument)->tid, number);
}

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "idle";
  pthread_barrier_init(&both_have_one, NULL, 2);
  if (strcmp(mode, "deadlock") == 0) {
    pid_t one = start("one", take_both, NULL)->tid;
    start_blocked("two", take_both, argv, SYS_futex);
    victim_await_syscall(one, SYS_futex);
  } else if (strcmp(mode, "stuck") == 0) {
    start_blocked("owner", sleep_with_lock, NULL, SYS_poll);
    start_blocked("waiter", wait_for_lock, NULL, SYS_futex);
    start_blocked("waiter", wait_for_lock, NULL, SYS_futex);
  } else if (strcmp(mode, "spin") == 0) {
    start("spinner", spin, NULL);
  } else if (strcmp(mode, "livelock") == 0) {
    start("one", try_both, NULL);
    start("two", try_both, argv);
  } else if (strcmp(mode, "slow") == 0) {
    for (int i = 0; i < 4; ++i) start("hander", hand_around, NULL);
  } else {
    start_blocked("worker", wait_for_work, NULL, SYS_futex);
    start_blocked("worker", wait_for_work, NULL, SYS_futex);
    start_blocked("timer", wait_for_time, NULL, SYS_clock_nanosleep);
  }
  victim_ready();
  victim_wait_for_ever();
}
