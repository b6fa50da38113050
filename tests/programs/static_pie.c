/* A static-pie program: LD_PRELOAD does not reach it, so it links the agent and installs it itself. */
#include <errno.h>

#include "agent/include/stackd/agent.h"
#include "tests/programs/victim.h"

static int silent_pipe[2];

VICTIM_NOINLINE static void wait_for_order(void) {
  char byte;
  while (read(silent_pipe[0], &byte, 1) < 0) {
  }
  VICTIM_NOT_A_TAIL_CALL();
}

VICTIM_NOINLINE static void* serve(void* unused) {
  wait_for_order();
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

/* With an argument it must not be installed. */
int main(int argc, char** argv) {
  (void)argv;
  victim_check(stackd_install() == (argc > 1 ? -ECANCELED : 0), "stackd_install");
  victim_check(stackd_set_process_name("static-pie") == 0, "stackd_set_process_name");
  victim_check(pipe(silent_pipe) == 0, "pipe");
  static victim_thread threads[4];
  for (int i = 0; i < 4; ++i) {
    victim_start(&threads[i], "server", serve, NULL, 256 << 10);
    victim_await_syscall(threads[i].tid, SYS_read);
  }
  victim_ready();
  victim_wait_for_ever();
}
