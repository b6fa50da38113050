/* One thread that blocks every signal it may, beside one that does not. */
#include <signal.h>

#include "tests/programs/victim.h"

static int silent_pipe[2];

VICTIM_NOINLINE static void wait_for_data(void) {
  char byte;
  while (read(silent_pipe[0], &byte, 1) < 0) {
  }
  VICTIM_NOT_A_TAIL_CALL();
}

static void* deaf(void* unused) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  wait_for_data();
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void* hears(void* unused) {
  wait_for_data();
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

int main(void) {
  victim_check(pipe(silent_pipe) == 0, "pipe");
  static victim_thread threads[2];
  victim_start(&threads[0], "deaf", deaf, NULL, 256 << 10);
  victim_start(&threads[1], "hears", hears, NULL, 256 << 10);
  victim_await_syscall(threads[0].tid, SYS_read);
  victim_await_syscall(threads[1].tid, SYS_read);
  victim_ready();
  victim_wait_for_ever();
}
