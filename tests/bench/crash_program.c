/* crash_program BYTES THREADS: says "ready", waits for a line on its standard input, writes the time (CLOCK_MONOTONIC,
 * nanoseconds), and reads through a null pointer. About BYTES of stack are in use, a fifth of it pointers as on real
 * stacks, while THREADS other threads wait. */
#include <alloca.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void* wait_for_ever(void* unused) {
  pthread_mutex_lock(&held);
  return unused;
}

__attribute__((noinline)) static int crash(volatile int* nothing) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  printf("%lld\n", (long long)now.tv_sec * 1000000000 + now.tv_nsec);
  fflush(stdout);
  return *nothing;
}

__attribute__((noinline)) static int crash_below(size_t stack_bytes) {
  size_t words = stack_bytes / 8 + 1;
  volatile uint64_t* stack = alloca(words * 8);
  for (size_t i = 0; i < words; i++) {
    stack[i] = i % 10 == 0   ? (uint64_t)(uintptr_t)&stack[i]
               : i % 10 == 5 ? (uint64_t)(uintptr_t)&wait_for_ever
                             : i * 0x9e3779b97f4a7c15u;
  }
  return crash(NULL) + (int)stack[0];
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  pthread_mutex_lock(&held);
  for (int i = atoi(argv[2]); i > 0; i--) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_for_ever, NULL) != 0) return 1;
  }
  puts("ready");
  fflush(stdout);
  if (getchar() == EOF) return 1;
  return crash_below((size_t)atol(argv[1]));
}
