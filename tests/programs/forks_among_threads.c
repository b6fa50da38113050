/* forks_among_threads FORKS: forks again and again while other threads have what locks the C library has, and waits for
 * each child, which ends at once. Prints "ready" when all have; "hung" for one that does not. */
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/programs/victim.h"

#define LIMIT_S 20
#define MAX_BLOCK_BYTES 10000u

static int look_at_object(struct dl_phdr_info* object, size_t size_bytes, void* unused) {
  (void)object, (void)size_bytes, (void)unused;
  return 0;
}

static void* load(void* unused) {
  for (;;) {
    void* library = dlopen("libm.so.6", RTLD_NOW);
    if (library != NULL) dlclose(library);
  }
  return unused;
}

static void* iterate(void* unused) {
  for (;;) dl_iterate_phdr(look_at_object, NULL);
  return unused;
}

static void* allocate(void* unused) {
  for (unsigned i = 0;; i++) free(malloc(i % MAX_BLOCK_BYTES));
  return unused;
}

static void* print(void* unused) {
  FILE* out = fopen("/dev/null", "we");
  for (;;) fputs("line\n", out);
  return unused;
}

static time_t now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

static int ends(pid_t child) {
  time_t end_s = now_s() + LIMIT_S;
  while (waitpid(child, NULL, WNOHANG) == 0) {
    if (now_s() > end_s) return 0;
    usleep(20);
  }
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  void* (*const routines[])(void*) = {load, iterate, allocate, print};
  for (int i = 0; i < 4; i++) {
    pthread_t thread;
    victim_check(pthread_create(&thread, NULL, routines[i], NULL) == 0, "pthread_create");
  }
  for (int i = 0; i < atoi(argv[1]); i++) {
    pid_t child = fork();
    victim_check(child >= 0, "fork");
    if (child == 0) _exit(0);
    if (ends(child)) continue;
    kill(child, SIGKILL);
    puts("hung");
    return 1;
  }
  puts("ready");
  return 0;
}
