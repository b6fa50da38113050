/* fork_time ROUNDS: how long a fork takes whose child ends at once. Prints two medians in nanoseconds: until it returns in
 * the parent, and until the child is waited for. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000 + now.tv_nsec;
}

static int by_value(const void* a, const void* b) {
  int64_t x = *(const int64_t*)a, y = *(const int64_t*)b;
  return (x > y) - (x < y);
}

static long long median(int64_t* values, size_t count) {
  qsort(values, count, sizeof(int64_t), by_value);
  return (long long)values[count / 2];
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  size_t rounds = (size_t)atol(argv[1]);
  int64_t* returned_ns = malloc(rounds * sizeof(int64_t));
  int64_t* ended_ns = malloc(rounds * sizeof(int64_t));
  for (size_t i = 0; i < rounds; i++) {
    int64_t begin_ns = now_ns();
    pid_t child = fork();
    if (child == 0) _exit(0);
    returned_ns[i] = now_ns() - begin_ns;
    if (child < 0 || waitpid(child, NULL, 0) != child) return 1;
    ended_ns[i] = now_ns() - begin_ns;
  }
  printf("%lld %lld\n", median(returned_ns, rounds), median(ended_ns, rounds));
  return 0;
}
