/* A thread that spends its life in the vDSO: code in no file. */
#include <time.h>

#include "tests/programs/victim.h"

static volatile long rounds;

VICTIM_NOINLINE static void read_the_clock(void) {
  struct timespec now;
  for (;;) {
    clock_gettime(CLOCK_MONOTONIC, &now);
    rounds = rounds + 1;
  }
}

static void* spin(void* unused) {
  read_the_clock();
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

int main(void) {
  static victim_thread thread;
  victim_start(&thread, "clock", spin, NULL, 256 << 10);
  while (rounds < 1000) usleep(200);
  victim_ready();
  victim_wait_for_ever();
}
