/* start_time ROUNDS AGENT PROGRAM: how long PROGRAM takes from its start to its end, without and with AGENT preloaded, in
 * turns. Prints "WITHOUT_NS WITH_NS", medians. */
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char** environ;

static int64_t run_ns(char* program) {
  char* arguments[] = {program, NULL};
  struct timespec begin, end;
  pid_t pid;
  int status;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  if (posix_spawn(&pid, program, NULL, NULL, arguments, environ) != 0) exit(1);
  if (waitpid(pid, &status, 0) != pid || status != 0) exit(1);
  clock_gettime(CLOCK_MONOTONIC, &end);
  return (end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec;
}

static int by_value(const void* a, const void* b) {
  int64_t x = *(const int64_t*)a, y = *(const int64_t*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  size_t rounds = (size_t)atol(argv[1]);
  int64_t* took_ns[2] = {malloc(rounds * sizeof(int64_t)), malloc(rounds * sizeof(int64_t))};
  for (size_t i = 0; i < rounds; i++) {
    unsetenv("LD_PRELOAD");
    took_ns[0][i] = run_ns(argv[3]);
    setenv("LD_PRELOAD", argv[2], 1);
    took_ns[1][i] = run_ns(argv[3]);
  }
  for (int with = 0; with < 2; with++) qsort(took_ns[with], rounds, sizeof(int64_t), by_value);
  printf("%lld %lld\n", (long long)took_ns[0][rounds / 2], (long long)took_ns[1][rounds / 2]);
  return 0;
}
