/* A thread inside each of several functions of the C library. It is called by a function of its own name, which its thread
 * has too: "main in_read" for read(). With "abort" or "free" it ends by that when it is told so. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALLER __attribute__((noinline)) static void

static int silent_pipe[2];
static int full_pipe[2];
static sem_t never_posted;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static char* volatile no_block = (char*)&held + 8;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never_signalled = PTHREAD_COND_INITIALIZER;

CALLER in_cond_wait(void) {
  pthread_mutex_lock(&lock);
  for (;;) pthread_cond_wait(&never_signalled, &lock);
}

CALLER in_sem_wait(void) {
  for (;;) sem_wait(&never_posted);
}

CALLER in_poll(void) {
  struct pollfd silent = {silent_pipe[0], POLLIN, 0};
  for (;;) poll(&silent, 1, -1);
}

CALLER in_sleep(void) {
  for (;;) sleep(1000);
}

CALLER in_mutex_lock(void) {
  for (;;) pthread_mutex_lock(&held);
}

CALLER in_fprintf(void) {
  FILE* stream = fdopen(full_pipe[1], "w");
  for (;;) fprintf(stream, "%4000d\n", 1);
}

static int compare(const void* left, const void* right) {
  char byte;
  while (read(silent_pipe[0], &byte, 1) != 1) {
  }
  return *(const int*)left - *(const int*)right;
}

CALLER in_qsort(void) {
  int numbers[9] = {9, 8, 7, 6, 5, 4, 3, 2, 1};
  for (;;) qsort(numbers, 9, sizeof numbers[0], compare);
}

static const struct waiter {
  const char* name;
  void (*wait)(void);
} waiters[] = {
    {"in_cond_wait", in_cond_wait},   {"in_sem_wait", in_sem_wait}, {"in_poll", in_poll},   {"in_sleep", in_sleep},
    {"in_mutex_lock", in_mutex_lock}, {"in_fprintf", in_fprintf},   {"in_qsort", in_qsort},
};

static void* run(void* argument) {
  const struct waiter* waiter = argument;
  pthread_setname_np(pthread_self(), waiter->name);
  waiter->wait();
  return NULL;
}

CALLER in_read(void) {
  char byte;
  while (read(silent_pipe[0], &byte, 1) != 1) {
  }
}

int main(int argc, char** argv) {
  if (pipe(silent_pipe) != 0 || pipe(full_pipe) != 0 || sem_init(&never_posted, 0, 0) != 0) return 1;
  pthread_mutex_lock(&held);
  for (size_t i = 0; i < sizeof waiters / sizeof waiters[0]; ++i) {
    pthread_t unused;
    if (pthread_create(&unused, NULL, run, (void*)(uintptr_t)&waiters[i]) != 0) return 1;
  }
  puts("ready");
  fflush(stdout);
  char byte;
  const bool dies = argc > 1 && read(STDIN_FILENO, &byte, 1) == 1;
  if (dies && strcmp(argv[1], "abort") == 0) abort();
  if (dies && strcmp(argv[1], "free") == 0) free(no_block);
  in_read();
  return 0;
}
