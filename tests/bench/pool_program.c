/* pool_program THREADS AWAKE: a program that is well. THREADS threads wait for work that does not come; AWAKE more wake up
 * ten times a second, as threads do that poll or tick. Says "ready". */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;

static void* wait_for_work(void* unused) {
  pthread_mutex_lock(&lock);
  for (;;) pthread_cond_wait(&work, &lock);
  return unused;
}

static void* tick(void* unused) {
  struct timespec tenth = {0, 100000000};
  for (;;) nanosleep(&tenth, NULL);
  return unused;
}

static void start(int count, void* (*body)(void*)) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 << 10);
  for (; count > 0; count--) {
    pthread_t thread;
    if (pthread_create(&thread, &attributes, body, NULL) != 0) exit(1);
  }
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  start(atoi(argv[1]), wait_for_work);
  start(atoi(argv[2]), tick);
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
