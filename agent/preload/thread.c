/* pthread_create() and thrd_create(): each thread gets an alternate signal stack before the program's code runs in it
 * (altstack.h). With the first one the helper comes too. */
#include <errno.h>
#include <pthread.h>
#include <threads.h>

#include "agent/helper/life.h"
#include "agent/preload/preload.h"
#include "agent/signals/altstack.h"
#include "agent/sys/kernel.h"

#define LOOK_NS 20000u

typedef int pthread_create_fn(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

typedef int thrd_create_fn(thrd_t*, thrd_start_t, void*);

static pthread_create_fn* real_pthread_create;
static thrd_create_fn* real_thrd_create;

void stackd_preload_find_thread(void) {
  STACKD_BEHIND(real_pthread_create, "pthread_create");
  STACKD_BEHIND(real_thrd_create, "thrd_create");
}

/* Threads that have not made the agent's system calls at their beginning. The child of a fork may count some that it does
 * not have. */
static uint32_t beginning;

void stackd_preload_await_threads(uint64_t duration_ns) {
  uint64_t end_ns = stackd_clock_ns(CLOCK_MONOTONIC) + duration_ns;
  while (__atomic_load_n(&beginning, __ATOMIC_ACQUIRE) != 0 && stackd_clock_ns(CLOCK_MONOTONIC) < end_ns) {
    stackd_pause_ns(LOOK_NS);
  }
}

static void use(struct stackd_altstack* stack) {
  stackd_altstack_use(stack);
  __atomic_fetch_sub(&beginning, 1, __ATOMIC_RELEASE);
}

static struct stackd_altstack* new_stack(void) {
  struct stackd_altstack* stack = stackd_altstack_new();
  if (stack != NULL) __atomic_fetch_add(&beginning, 1, __ATOMIC_RELAXED);
  return stack;
}

static void take_back(struct stackd_altstack* stack) {
  __atomic_fetch_sub(&beginning, 1, __ATOMIC_RELAXED);
  stackd_altstack_free(stack);
}

/* Ends in a jump: no frame of ours is on the thread's stack (tests/safety). */
static void* begin_thread(void* value) {
  struct stackd_altstack* stack = value;
  void* (*start_routine)(void*) = (void* (*)(void*))stack->start_routine;
  void* argument = stack->argument;
  use(stack);
  return start_routine(argument);
}

STACKD_EXPORT int pthread_create(pthread_t* restrict thread, const pthread_attr_t* restrict attributes,
                                 void* (*start_routine)(void*), void* restrict argument) {
  /* None in a program without threads, with a glibc that kept them in a library of their own. */
  if (STACKD_BEHIND(real_pthread_create, "pthread_create") == NULL) return EAGAIN;
  stackd_helper_start();
  struct stackd_altstack* stack = new_stack();
  if (stack == NULL) return real_pthread_create(thread, attributes, start_routine, argument);
  stack->start_routine = (void (*)(void))start_routine;
  stack->argument = argument;
  int error = real_pthread_create(thread, attributes, begin_thread, stack);
  if (error != 0) take_back(stack);
  return error;
}

/* The one above, whatever the name means to the loader. */
static __typeof__(pthread_create) own_pthread_create __attribute__((alias("pthread_create"), copy(pthread_create)));

bool stackd_preload_sees_threads(void) { return stackd_preload_any("pthread_create") == (void*)own_pthread_create; }

static int begin_c11_thread(void* value) {
  struct stackd_altstack* stack = value;
  thrd_start_t start_routine = (thrd_start_t)stack->start_routine;
  void* argument = stack->argument;
  use(stack);
  return start_routine(argument);
}

STACKD_EXPORT int thrd_create(thrd_t* thread, thrd_start_t start_routine, void* argument) {
  stackd_helper_start();
  struct stackd_altstack* stack = new_stack();
  if (stack == NULL) return STACKD_BEHIND(real_thrd_create, "thrd_create")(thread, start_routine, argument);
  stack->start_routine = (void (*)(void))start_routine;
  stack->argument = argument;
  int error = STACKD_BEHIND(real_thrd_create, "thrd_create")(thread, begin_c11_thread, stack);
  if (error != thrd_success) take_back(stack);
  return error;
}
