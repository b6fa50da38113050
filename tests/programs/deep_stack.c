/* A stack with 300 KiB in use: more than a dump copies of one thread (256 KiB). */
#include "tests/programs/victim.h"

enum { kFrameBytes = 3 << 10, kDepth = 100 };
static int silent_pipe[2];

VICTIM_NOINLINE static int descend(volatile int depth) {
  volatile char frame[kFrameBytes];
  frame[0] = (char)depth;
  if (depth == 0) {
    char byte;
    while (read(silent_pipe[0], &byte, 1) < 0) {
    }
    return 0;
  }
  return descend(depth - 1) + frame[0];
}

static void* start(void* unused) {
  if (descend(kDepth) < 0) abort();
  return unused;
}

int main(void) {
  victim_check(pipe(silent_pipe) == 0, "pipe");
  static victim_thread thread;
  victim_start(&thread, "deep", start, NULL, 1 << 20);
  victim_await_syscall(thread.tid, SYS_read);
  victim_ready();
  victim_wait_for_ever();
}
