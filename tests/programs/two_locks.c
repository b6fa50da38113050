/* Two threads, "first" and "second", take two locks in opposite orders, for good: mutexes of the type that the argument
 * names ("normal", "recursive", "errorcheck"). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t account;
static pthread_mutex_t ledger;
static pthread_barrier_t both_hold_one;

static void* take(const char* name, pthread_mutex_t* one, pthread_mutex_t* other) {
  pthread_setname_np(pthread_self(), name);
  pthread_mutex_lock(one);
  pthread_barrier_wait(&both_hold_one);
  pthread_mutex_lock(other);
  return NULL;
}

static void* first(void* unused) {
  (void)unused;
  return take("first", &account, &ledger);
}

static void* second(void* unused) {
  (void)unused;
  return take("second", &ledger, &account);
}

int main(int argc, char** argv) {
  const char* type = argc > 1 ? argv[1] : "normal";
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  if (strcmp(type, "recursive") == 0) pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
  if (strcmp(type, "errorcheck") == 0) pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
  pthread_mutex_init(&account, &attributes);
  pthread_mutex_init(&ledger, &attributes);
  pthread_barrier_init(&both_hold_one, NULL, 2);
  pthread_t threads[2];
  if (pthread_create(&threads[0], NULL, first, NULL) != 0) return 1;
  if (pthread_create(&threads[1], NULL, second, NULL) != 0) return 1;
  puts("ready");
  fflush(stdout);
  pthread_join(threads[0], NULL);
  return 0;
}
