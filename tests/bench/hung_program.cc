// hung_program [THREADS]: says "ready" when all of its threads block, and stays.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/bench/hung_threads.h"

int main(int argc, char** argv) {
  stackd::bench::StartHungThreads(argc > 1 ? atoi(argv[1]) : 1000);
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
