/* Forbids itself by Landlock to read any file but those below /usr. Says which it can read: in its first thread, in one
 * that it starts after that, and in a child. Answers a line from stdin and ends with 7; with 77 if the kernel has no
 * Landlock. */
#include <errno.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "victim.h"

static int can_read(const char* path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd >= 0) close(fd);
  return fd >= 0 ? 0 : errno;
}

static void* say_what_can_be_read(void* who) {
  printf("%s: /etc/passwd %d, /usr/bin/env %d\n", (const char*)who, can_read("/etc/passwd"), can_read("/usr/bin/env"));
  fflush(stdout);
  return NULL;
}

static void restrict_self(void) {
  struct landlock_ruleset_attr rules = {.handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE};
  int ruleset = (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0);
  if (ruleset < 0 && (errno == ENOSYS || errno == EOPNOTSUPP)) exit(77);
  victim_check(ruleset >= 0, "landlock_create_ruleset");
  struct landlock_path_beneath_attr below_usr = {.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE};
  below_usr.parent_fd = open("/usr", O_PATH | O_CLOEXEC);
  victim_check(syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &below_usr, 0) == 0,
               "landlock_add_rule");
  victim_check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "prctl");
  victim_check(syscall(SYS_landlock_restrict_self, ruleset, 0) == 0, "landlock_restrict_self");
  close(below_usr.parent_fd);
  close(ruleset);
}

int main(void) {
  restrict_self();
  say_what_can_be_read("first");
  pthread_t thread;
  victim_check(pthread_create(&thread, NULL, say_what_can_be_read, "thread") == 0, "pthread_create");
  pthread_join(thread, NULL);
  pid_t child = fork();
  victim_check(child >= 0, "fork");
  if (child == 0) {
    say_what_can_be_read("child");
    return 0;
  }
  waitpid(child, NULL, 0);
  victim_ready();
  char line[64];
  if (fgets(line, sizeof line, stdin) == NULL) return 3;
  say_what_can_be_read("later");
  fputs(line, stdout);
  return 7;
}
