/* deep_program THREADS BYTES: threads that block with about BYTES of stack in use, a fifth of it pointers as on real
 * stacks. Says "ready" when they do, and stays. */
#include <alloca.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the thread's start and the wait itself take. */
#define OTHER_FRAMES_BYTES 500

static size_t stack_bytes;
static sem_t blocked;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static void wait_for_ever(void) {
  sem_post(&blocked);
  pthread_mutex_lock(&held);
  __asm__ volatile("" ::: "memory");
}

static void* thread_main(void* unused) {
  (void)unused;
  size_t words = stack_bytes > OTHER_FRAMES_BYTES ? (stack_bytes - OTHER_FRAMES_BYTES) / 8 : 1;
  volatile uint64_t* stack = alloca(words * 8);
  for (size_t i = 0; i < words; i++) {
    switch (i % 10) {
      case 0:
        stack[i] = (uint64_t)(uintptr_t)&stack[i];
        break;
      case 5:
        stack[i] = (uint64_t)(uintptr_t)&wait_for_ever;
        break;
      default:
        stack[i] = i * 0x9e3779b97f4a7c15u;
    }
  }
  wait_for_ever();
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  int threads = atoi(argv[1]);
  stack_bytes = (size_t)atol(argv[2]);
  sem_init(&blocked, 0, 0);
  pthread_mutex_lock(&held);
  for (int i = 0; i < threads; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_main, NULL) != 0) return 1;
  }
  for (int i = 0; i < threads; i++) sem_wait(&blocked);
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
