/* idle_program [PROCESSES]: that many in all, forked by the first; says "ready" when they are there. They stay, and end
 * with the first. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char** argv) {
  for (int i = 1; argc > 1 && i < atoi(argv[1]); i++) {
    pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) pause();
    }
  }
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
