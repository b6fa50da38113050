/* pool_program THREADS AWAKE PERIOD_MS: a program that is well. THREADS threads wait for work that does not come; AWAKE
 * more wake up once in each period, as threads do that poll or tick. Says "ready". */
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

static void* tick(void* period) {
  for (;;) nanosleep(period, NULL);
  return NULL;
}

static void start(int count, void* (*body)(void*), void* argument) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 << 10);
  for (; count > 0; count--) {
    pthread_t thread;
    if (pthread_create(&thread, &attributes, body, argument) != 0) exit(1);
  }
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  int period_ms = atoi(argv[3]);
  struct timespec period = {period_ms / 1000, period_ms % 1000 * 1000000};
  start(atoi(argv[1]), wait_for_work, NULL);
  start(atoi(argv[2]), tick, &period);
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
