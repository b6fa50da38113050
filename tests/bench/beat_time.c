/* What a beat costs, next to what a program might do instead.
 *
 *   beat_time            prints "BEAT SUSPEND CLOCK ADD": ns of one stackd_beat(), of a suspension with the beat after it,
 *                        of one clock_gettime(), of one atomic addition
 *   beat_time for-ever   beats, after it has said "ready TID"
 *
 * STACKD_DIR must have a daemon: only then a beat goes to where it is watched.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "stackd/agent.h"

#define BATCHES 400
#define ROUNDS 20000

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Evaluates to the ns that one execution of `body` takes: in the fastest batch, since a longer one would hold what else the
 * machine does. */
#define MEASURE(body)                                \
  ({                                                 \
    uint64_t best_ns = UINT64_MAX;                   \
    for (int batch = 0; batch < BATCHES; batch++) {  \
      uint64_t begin_ns = now_ns();                  \
      for (int round = 0; round < ROUNDS; round++) { \
        body;                                        \
      }                                              \
      uint64_t took_ns = now_ns() - begin_ns;        \
      if (took_ns < best_ns) best_ns = took_ns;      \
    }                                                \
    (double)best_ns / ROUNDS;                        \
  })

/* From when there is a dump, there is a ring to beat into. */
static int await_daemon(void) {
  for (int tries = 0; tries < 3000; tries++) {
    if (stackd_dump_now(10000) == 0) return 1;
    usleep(10000);
  }
  return 0;
}

int main(int argc, char** argv) {
  (void)argv;
  if (stackd_install() != 0) return 1;
  if (!await_daemon()) return 1;
  stackd_heartbeat_t* heartbeat = stackd_heartbeat_register("bench", 60000);
  if (argc > 1) {
    stackd_beat(heartbeat);
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    for (;;) stackd_beat(heartbeat);
  }
  static uint64_t counter __attribute__((aligned(64)));
  double beat_ns = MEASURE(stackd_beat(heartbeat));
  double suspend_ns = MEASURE({
    stackd_heartbeat_suspend(heartbeat);
    stackd_beat(heartbeat);
  });
  double clock_ns = MEASURE(now_ns());
  double add_ns = MEASURE(__atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED));
  printf("%.2f %.2f %.2f %.2f\n", beat_ns, suspend_ns, clock_ns, add_ns);
  return 0;
}
