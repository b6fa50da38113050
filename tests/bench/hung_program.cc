// hung_program THREADS [watch]: says "ready" when all of its threads block, and stays. "watch": as in gap_watch.h.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/bench/gap_watch.h"
#include "tests/bench/hung_threads.h"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  stackd::bench::StartHungThreads(atoi(argv[1]));
  if (argc > 2) gap_watch_serve();
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
