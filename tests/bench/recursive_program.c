/* recursive_program THREADS FRAMES: threads that block below so many calls of one function; says "ready" when they do, and
 * stays. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static sem_t blocked;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static int descend(int frames) {
  if (frames > 1) return descend(frames - 1) + 1;
  sem_post(&blocked);
  pthread_mutex_lock(&held);
  return 0;
}

static void* thread_main(void* frames) {
  descend(*(const int*)frames);
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  int threads = atoi(argv[1]);
  int frames = atoi(argv[2]);
  sem_init(&blocked, 0, 0);
  pthread_mutex_lock(&held);
  for (int i = 0; i < threads; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_main, &frames) != 0) return 1;
  }
  for (int i = 0; i < threads; i++) sem_wait(&blocked);
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
