/* THREADS threads with FRAMES frames each, no two of which have a stack in common: what costs a daemon most for each byte.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static sem_t ready;
static int frame_count;

typedef int call(uint64_t path, int depth);
static call zero, one;

static __attribute__((noinline, noclone)) int next(uint64_t path, int depth) {
  if (depth == frame_count) {
    sem_post(&ready);
    for (;;) pause();
  }
  uint64_t rest = path * 6364136223846793005u + 1442695040888963407u;
  return (rest >> 63 ? one : zero)(rest, depth + 1);
}

static __attribute__((noinline, noclone)) int zero(uint64_t path, int depth) { return next(path, depth) + 1; }
static __attribute__((noinline, noclone)) int one(uint64_t path, int depth) { return next(path, depth) - 1; }

static void* run(void* number) {
  next((uintptr_t)number, 0);
  return NULL;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  frame_count = atoi(argv[2]) / 2;
  sem_init(&ready, 0, 0);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, (64u << 10) + (size_t)frame_count * 128);
  for (uintptr_t i = 0; i < (uintptr_t)atoi(argv[1]); i++) {
    pthread_t thread;
    if (pthread_create(&thread, &attributes, run, (void*)(i + 1)) != 0) return 1;
    sem_wait(&ready);
  }
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
