/* seccomp_wrapper errno|kill COMMAND...: what systemd's SystemCallFilter=~@debug @ipc @module @mount @raw-io @reboot @swap
 * and NoNewPrivileges= do to a service. A filter is put on before exec, and so before the agent begins. The calls that it
 * knows get EPERM, or kill the process.
 *
 * Compiled by the test, with -lseccomp. */
#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char* const refused[] = {"ptrace",
                                      "perf_event_open",
                                      "lookup_dcookie",
                                      "pidfd_getfd",
                                      "memfd_create",
                                      "mq_getsetattr",
                                      "mq_notify",
                                      "mq_open",
                                      "mq_timedsend",
                                      "mq_unlink",
                                      "mq_timedreceive",
                                      "msgctl",
                                      "msgget",
                                      "msgrcv",
                                      "msgsnd",
                                      "pipe",
                                      "pipe2",
                                      "process_madvise",
                                      "semctl",
                                      "semget",
                                      "semop",
                                      "semtimedop",
                                      "process_vm_readv",
                                      "process_vm_writev",
                                      "shmat",
                                      "shmctl",
                                      "shmdt",
                                      "shmget",
                                      "init_module",
                                      "finit_module",
                                      "delete_module",
                                      "mount",
                                      "umount2",
                                      "pivot_root",
                                      "chroot",
                                      "move_mount",
                                      "fsopen",
                                      "fsconfig",
                                      "fsmount",
                                      "open_tree",
                                      "iopl",
                                      "ioperm",
                                      "reboot",
                                      "kexec_load",
                                      "kexec_file_load",
                                      "swapon",
                                      "swapoff"};

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  int kills = strcmp(argv[1], "kill") == 0;
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    int number = seccomp_syscall_resolve_name(refused[i]);
    if (number < 0) continue; /* of another architecture */
    errno = -seccomp_rule_add(filter, kills ? SCMP_ACT_KILL_PROCESS : SCMP_ACT_ERRNO(EPERM), number, 0);
    if (errno != 0) perror(refused[i]);
  }
  errno = -seccomp_load(filter); /* with PR_SET_NO_NEW_PRIVS */
  if (errno != 0) {
    perror("seccomp_load");
    return 1;
  }
  execvp(argv[2], argv + 2);
  perror(argv[2]);
  return 127;
}
