/* forks_among_threads FORKS: forks again and again while other threads have what locks the C library has. Each child
 * allocates memory and ends. Prints "ready" when all have; "hung" for one that does not. */
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unwind.h>

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

/* What a throw does before a frame that catches is found. The library is loaded anew each time, and what it calls is looked
 * up when it calls. musl has none. */
static void* throw(void* unused) {
  for (;;) {
    void* library = dlopen("libgcc_s.so.1", RTLD_LAZY);
    if (library == NULL) return unused;
    __typeof__(_Unwind_RaiseException)* raise_exception = dlsym(library, "_Unwind_RaiseException");
    struct _Unwind_Exception exception = {0};
    if (raise_exception != NULL) raise_exception(&exception);
    dlclose(library);
  }
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
  void* (*const routines[])(void*) = {load, throw, iterate, allocate, print};
  for (size_t i = 0; i < sizeof routines / sizeof routines[0]; i++) {
    pthread_t thread;
    victim_check(pthread_create(&thread, NULL, routines[i], NULL) == 0, "pthread_create");
  }
  for (int i = 0; i < atoi(argv[1]); i++) {
    pid_t child = fork();
    victim_check(child >= 0, "fork");
    if (child == 0) {
      free(malloc(MAX_BLOCK_BYTES));
      _exit(0);
    }
    if (ends(child)) continue;
    kill(child, SIGKILL);
    puts("hung");
    return 1;
  }
  puts("ready");
  return 0;
}
