/* Gives all its threads one alternate stack, as varnish does. It is for a handler that ends the process, and so for one
 * thread at a time. The threads keep a pattern on their own stacks, half of them asleep and half of them at work, and
 * compare it again and again. Answers a line from stdin and ends with 7. */
#include <signal.h>
#include <sys/mman.h>

#include "victim.h"

enum { THREADS = 16, STACK_BYTES = 64 * 1024, PATTERN_WORDS = 512 };

static void* shared;
static int go_on[2];
static int over, wrong;

static VICTIM_NOINLINE void compare(const uint64_t* pattern, uint64_t seed) {
  for (uint64_t i = 0; i < PATTERN_WORDS; i++) {
    if (pattern[i] != seed * i) __atomic_store_n(&wrong, 1, __ATOMIC_RELAXED);
  }
}

static void* keep_pattern(void* number) {
  stack_t alternate = {.ss_sp = shared, .ss_size = STACK_BYTES};
  victim_check(sigaltstack(&alternate, NULL) == 0, "sigaltstack");
  uint64_t seed = (uint64_t)(long)number + 1;
  volatile uint64_t pattern[PATTERN_WORDS];
  for (uint64_t i = 0; i < PATTERN_WORDS; i++) pattern[i] = seed * i;
  if (seed % 2 == 0) {
    char byte;
    if (read(go_on[0], &byte, 1) != 1) wrong = 1;
  } else {
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
      compare((const uint64_t*)pattern, seed);
      usleep(1000);
    }
  }
  compare((const uint64_t*)pattern, seed);
  return NULL;
}

int main(void) {
  victim_thread threads[THREADS] = {0};
  victim_check(pipe(go_on) == 0, "pipe");
  shared = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  victim_check(shared != MAP_FAILED, "mmap");
  for (long i = 0; i < THREADS; i++) victim_start(&threads[i], "keeper", keep_pattern, (void*)i, 65536);
  for (int i = 0; i < THREADS; i += 2) victim_await_asleep(threads[i].tid);
  victim_ready();
  char line[64];
  if (fgets(line, sizeof line, stdin) == NULL) return 3;
  __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
  if (write(go_on[1], "abcdefgh", THREADS / 2) != THREADS / 2) return 4;
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i].handle, NULL);
  printf("%swrong %d\n", line, wrong);
  return 7;
}
