/* seccomp_twice: puts libseccomp's filter on itself, which kills for any call but those of its own work. Then it puts on
 * another like it, as programs do that narrow what they may step by step. */
#include <seccomp.h>
#include <string.h>
#include <unistd.h>

static void put_filter(void) {
  static const char* const own[] = {"read",    "write", "exit_group", "rt_sigreturn", "restart_syscall", "prctl",
                                    "seccomp", "brk",   "mmap",       "munmap",       "madvise"};
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
  if (filter == NULL) _exit(1);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    if (seccomp_rule_add(filter, SCMP_ACT_ALLOW, seccomp_syscall_resolve_name(own[i]), 0) != 0) _exit(2);
  }
  if (seccomp_load(filter) != 0) _exit(3);
  seccomp_release(filter);
}

int main(void) {
  put_filter();
  put_filter();
  if (write(STDOUT_FILENO, "ready\n", strlen("ready\n")) < 0) _exit(4);
  char line[64];
  ssize_t got = read(STDIN_FILENO, line, sizeof line);
  if (got <= 0 || write(STDOUT_FILENO, line, (size_t)got) != got) _exit(5);
  _exit(7);
}
