/* Enters seccomp's strict mode, in which a process may read, write, return from a signal and end its thread, and is killed
 * for anything else. Answers a line from stdin and ends with 7. */
#include <linux/seccomp.h>
#include <string.h>
#include <sys/prctl.h>

#include "victim.h"

int main(void) {
  victim_ready();
  victim_check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0, "prctl");
  char line[64];
  ssize_t got = read(0, line, sizeof line);
  /* Ends the only thread, and so the process. exit() would make exit_group(), for which the kernel kills. */
  if (got <= 0 || write(1, line, (size_t)got) != got) syscall(SYS_exit, 1);
  syscall(SYS_exit, 7);
}
