/* pthread_create(): each thread gets an alternate signal stack before the program's code runs in it (altstack.h). */
#include <pthread.h>

#include "agent/altstack.h"
#include "agent/preload.h"

typedef int pthread_create_fn(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

static pthread_create_fn* real_pthread_create;

void stackd_preload_find_thread(void) { STACKD_BEHIND(real_pthread_create, "pthread_create"); }

/* Ends in a jump: no frame of ours is on the thread's stack (tests/safety). */
static void* begin(void* value) {
  struct stackd_altstack* stack = value;
  void* (*start_routine)(void*) = stack->start_routine;
  void* argument = stack->argument;
  stackd_altstack_use(stack);
  return start_routine(argument);
}

STACKD_EXPORT int pthread_create(pthread_t* restrict thread, const pthread_attr_t* restrict attributes,
                                 void* (*start_routine)(void*), void* restrict argument) {
  struct stackd_altstack* stack = stackd_altstack_new();
  if (stack == NULL) {
    return STACKD_BEHIND(real_pthread_create, "pthread_create")(thread, attributes, start_routine, argument);
  }
  stack->start_routine = start_routine;
  stack->argument = argument;
  int error = STACKD_BEHIND(real_pthread_create, "pthread_create")(thread, attributes, begin, stack);
  if (error != 0) stackd_altstack_free(stack);
  return error;
}
