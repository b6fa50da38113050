/* The rest of that program: THREADS threads, the stack of each through four of the units. Says "ready" when all block. */
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef int Next(int depth);
typedef int Unit(Next* next, int depth);

/* Generated: all copies of bench_unit(). */
extern Unit* const bench_units[];
extern const int bench_unit_count;

#define UNITS_PER_STACK 4

static sem_t blocked;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static __thread int thread_index;

static int next(int depth) {
  if (depth == 0) {
    sem_post(&blocked);
    pthread_mutex_lock(&held);
  } else {
    bench_units[(thread_index * UNITS_PER_STACK + depth) % bench_unit_count](next, depth - 1);
  }
  __asm__ volatile("" ::: "memory");
  return depth;
}

static void* thread_main(void* index) {
  thread_index = (int)(intptr_t)index;
  next(UNITS_PER_STACK);
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  int threads = atoi(argv[1]);
  sem_init(&blocked, 0, 0);
  pthread_mutex_lock(&held);
  for (int i = 0; i < threads; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_main, (void*)(intptr_t)i) != 0) return 1;
  }
  for (int i = 0; i < threads; i++) sem_wait(&blocked);
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
