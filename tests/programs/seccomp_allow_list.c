/* seccomp_allow_list kill|errno [tsync]: puts libseccomp's filter on itself that knows the calls of its own work. Any other
 * kills the process or gets EPERM. With "tsync" the filter is put on all threads, else on the first, the only one. Answers
 * a line from stdin and ends with 7.
 *
 * Compiled by the test, with -lseccomp. */
#include <errno.h>
#include <pthread.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORKERS 3

static int pipes[WORKERS][2];
static long sums[WORKERS];

static void check(int ok, const char* what) {
  if (ok) return;
  perror(what);
  exit(1);
}

static void say(const char* text) {
  if (write(1, text, strlen(text)) < 0) _exit(2);
}

/* Adds up what comes through its pipe, until that is closed. */
static void* work(void* number) {
  long which = (long)number;
  unsigned char bytes[64];
  ssize_t got;
  while ((got = read(pipes[which][0], bytes, sizeof bytes)) > 0) {
    for (ssize_t i = 0; i < got; i++) sums[which] += bytes[i];
  }
  return NULL;
}

static void put_filter(uint32_t action, int on_all_threads) {
  static const char* const own[] = {
      "read",    "write",  "close",          "futex",        "exit", "exit_group",     "rt_sigreturn", "restart_syscall",
      "madvise", "munmap", "rt_sigprocmask", "rt_sigaction", "rseq", "set_robust_list"};
  scmp_filter_ctx filter = seccomp_init(action);
  check(filter != NULL, "seccomp_init");
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    errno = -seccomp_rule_add(filter, SCMP_ACT_ALLOW, seccomp_syscall_resolve_name(own[i]), 0);
    check(errno == 0, own[i]);
  }
  if (on_all_threads) check(seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1) == 0, "tsync");
  errno = -seccomp_load(filter);
  check(errno == 0, "seccomp_load");
}

int main(int argc, char** argv) {
  int kills = argc > 1 && strcmp(argv[1], "kill") == 0;
  int with_threads = argc > 2;
  pthread_t threads[WORKERS];
  for (long i = 0; with_threads && i < WORKERS; i++) {
    check(pipe(pipes[i]) == 0, "pipe");
    errno = pthread_create(&threads[i], NULL, work, (void*)i);
    check(errno == 0, "pthread_create");
  }
  put_filter(kills ? SCMP_ACT_KILL_PROCESS : SCMP_ACT_ERRNO(EPERM), with_threads);
  struct sigaction ignore = {.sa_handler = SIG_IGN};
  if (sigaction(SIGFPE, &ignore, NULL) != 0) return 5;
  say("ready\n");

  char line[64];
  ssize_t got = read(0, line, sizeof line);
  if (got <= 0) return 3;
  if (write(1, line, (size_t)got) != got) return 4;
  for (int i = 0; with_threads && i < WORKERS; i++) {
    if (write(pipes[i][1], line, (size_t)got) != got) return 5;
    close(pipes[i][1]);
    pthread_join(threads[i], NULL);
    if (sums[i] != sums[0] || sums[i] == 0) return 6;
  }
  say("done\n");
  return 7;
}
