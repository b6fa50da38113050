/* A thread that does nothing but look at the clock: what keeps it from that is a pause, whatever its cause. */
#pragma once

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t gap_watch_longest_ns;

static inline uint64_t gap_watch_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now); /* the vDSO: the time-stamp counter, and no system call */
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void* gap_watch_main(void* unused) {
  (void)unused;
  for (uint64_t last_ns = gap_watch_now_ns();;) {
    uint64_t now_ns = gap_watch_now_ns();
    uint64_t longest_ns = __atomic_load_n(&gap_watch_longest_ns, __ATOMIC_RELAXED);
    if (now_ns - last_ns > longest_ns) {
      __atomic_compare_exchange_n(&gap_watch_longest_ns, &longest_ns, now_ns - last_ns, 0, __ATOMIC_RELAXED,
                                  __ATOMIC_RELAXED);
    }
    last_ns = now_ns;
  }
  return NULL;
}

/* Starts the thread and never returns: answers each line on stdin with the longest gap since the line before, in ns. */
static inline void gap_watch_serve(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, gap_watch_main, NULL) != 0) exit(1);
  puts("ready");
  fflush(stdout);
  char line[16];
  while (fgets(line, sizeof line, stdin) != NULL) {
    printf("%llu\n", (unsigned long long)__atomic_exchange_n(&gap_watch_longest_ns, 0, __ATOMIC_RELAXED));
    fflush(stdout);
  }
  exit(0);
}
