/* living_children COUNT [UID]: forks COUNT children that live on and do nothing; with UID each becomes that user first.
 * Prints "ready" and their pids. The first line from stdin has the first child crash; prints the signal that ended it. */
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "tests/programs/victim.h"

static volatile int* nowhere;
static int begun[2];

VICTIM_NOINLINE static int crash_in_child(void) { return *nowhere; }

static void on_request(int signal_number) {
  (void)signal_number;
  crash_in_child();
}

static void live(int argc, char** argv) {
  if (argc > 2) {
    uid_t uid = (uid_t)atoi(argv[2]);
    victim_check(setgroups(0, NULL) == 0 && setgid(uid) == 0 && setuid(uid) == 0, "setuid");
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  /* Before that the agent takes a child for one of vfork(). */
  victim_check(write(begun[1], "b", 1) == 1, "write");
  for (;;) pause();
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  int count = atoi(argv[1]);
  pid_t* children = calloc((size_t)count, sizeof *children);
  signal(SIGUSR1, on_request);
  victim_check(pipe(begun) == 0, "pipe");
  for (int i = 0; i < count; i++) {
    children[i] = fork();
    victim_check(children[i] >= 0, "fork");
    if (children[i] == 0) live(argc, argv);
  }
  char byte;
  for (int i = 0; i < count; i++) victim_check(read(begun[0], &byte, 1) == 1, "read");
  printf("ready");
  for (int i = 0; i < count; i++) printf(" %d", (int)children[i]);
  puts("");
  fflush(stdout);
  char line[64];
  if (fgets(line, sizeof line, stdin) == NULL) return 3;
  kill(children[0], SIGUSR1);
  int status;
  if (waitpid(children[0], &status, 0) != children[0]) return 4;
  printf("ended by %d\n", WTERMSIG(status));
  for (int i = 1; i < count; i++) kill(children[i], SIGKILL);
  return 0;
}
