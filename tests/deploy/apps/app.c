/* As app.py, for a C library that is not this machine's. With ALONE there is one thread, and no library of threads. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef ALONE
#include <pthread.h>

__attribute__((noinline)) static void stands_still(void) {
  for (;;) sleep(10000);
}

static void* run(void* unused) {
  stands_still();
  return unused;
}
#endif

__attribute__((noinline)) static void read_at_null(volatile int* where) { *where = 1; }

int main(void) {
#ifndef ALONE
  pthread_t thread;
  pthread_create(&thread, NULL, run, NULL);
#endif
  puts("ready");
  fflush(stdout);
  char line[16] = "";
  while (fgets(line, sizeof line, stdin) == NULL) {
  }
  if (strcmp(line, "crash\n") == 0) read_at_null((int*)8);
  return 0;
}
