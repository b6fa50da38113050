/* process_tree CHILDREN EXECS: forks CHILDREN processes, each of which executes itself EXECS times over and then waits.
 * Prints "ready" when all wait. Every child dies with the first process. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "tests/programs/victim.h"

VICTIM_NOINLINE static void child_waits(int fd) {
  char byte;
  while (read(fd, &byte, 1) < 0) {
  }
  VICTIM_NOT_A_TAIL_CALL();
}

/* `arrived`: where a child writes a byte when it executes nothing more. Kept open over each exec. */
static int run_child(int execs_left, int arrived) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (execs_left > 0) {
    char left[16], fd[16];
    snprintf(left, sizeof left, "%d", execs_left - 1);
    snprintf(fd, sizeof fd, "%d", arrived);
    execl("/proc/self/exe", "process_tree", "child", left, fd, (char*)NULL);
    perror("execl");
    return 1;
  }
  int ends[2];
  victim_check(pipe(ends) == 0, "pipe");
  victim_check(write(arrived, "", 1) == 1, "write");
  child_waits(ends[0]);
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 4 && strcmp(argv[1], "child") == 0) return run_child(atoi(argv[2]), atoi(argv[3]));
  if (argc != 3) return 2;
  int arrivals[2];
  victim_check(pipe(arrivals) == 0, "pipe");
  int children = atoi(argv[1]);
  for (int i = 0; i < children; ++i) {
    pid_t child = fork();
    victim_check(child >= 0, "fork");
    if (child == 0) return run_child(atoi(argv[2]), arrivals[1]);
    char byte, path[64];
    victim_check(read(arrivals[0], &byte, 1) == 1, "read");
    snprintf(path, sizeof path, "/proc/%d/syscall", (int)child);
    victim_await_syscall_file(path, SYS_read);
  }
  victim_ready();
  victim_wait_for_ever();
}
