/* daemonizes FIFO keep|close [UID]: does what services do to their surroundings. Forks twice, leaves the session, closes
 * every fd (close), changes to user UID, and then writes "PID\n" of the last process into FIFO. */
#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>

#include "tests/programs/victim.h"

static int silent_pipe[2];

VICTIM_NOINLINE static void* wait_as_daemon(void* unused) {
  char byte;
  while (read(silent_pipe[0], &byte, 1) < 0) {
  }
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void become_child(void) {
  pid_t child = fork();
  victim_check(child >= 0, "fork");
  if (child > 0) _exit(0);
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  become_child();
  setsid();
  become_child();
  victim_check(chdir("/") == 0, "chdir");
  int fifo = open(argv[1], O_WRONLY);
  victim_check(fifo >= 0, "open");
  /* Closes every fd but the way back: also those that belong to other code in this process. */
  fifo = dup2(fifo, 0);
  if (strcmp(argv[2], "close") == 0) syscall(SYS_close_range, 1, ~0u, 0);
  if (argc > 3) {
    uid_t uid = (uid_t)atoi(argv[3]);
    if (setgroups(0, NULL) != 0 || setgid(uid) != 0 || setuid(uid) != 0) _exit(3);
  }
  if (pipe(silent_pipe) != 0) _exit(4);
  static victim_thread thread;
  victim_start(&thread, "in-daemon", wait_as_daemon, NULL, 256 << 10);
  victim_await_asleep(thread.tid);
  dprintf(fifo, "%d\n", (int)getpid());
  victim_wait_for_ever();
}
