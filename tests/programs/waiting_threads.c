/* waiting_threads N: N threads besides main, each in pthread_cond_wait, on 64 KiB stacks. */
#include "tests/programs/victim.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

VICTIM_NOINLINE static void* wait_for_work(void* unused) {
  pthread_mutex_lock(&mutex);
  for (;;) pthread_cond_wait(&never, &mutex);
  return unused;
}

int main(int argc, char** argv) {
  int count = argc > 1 ? atoi(argv[1]) : 8;
  victim_thread* threads = calloc((size_t)count, sizeof *threads);
  for (int i = 0; i < count; ++i) victim_start(&threads[i], "waiter", wait_for_work, NULL, 64 << 10);
  for (int i = 0; i < count; ++i) victim_await_syscall(threads[i].tid, SYS_futex);
  victim_ready();
  victim_wait_for_ever();
}
