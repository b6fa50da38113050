/* footprint WHAT: does one thing between two marks in a trace of its system calls, writes of "begin" and "end" to no fd. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "tests/programs/victim.h"

#define LATER_US 1100000
#define IDLE_MS 1500

/* The agent's, where it is preloaded. */
extern int stackd_dump_now(int timeout_ms) __attribute__((weak));
extern void* stackd_heartbeat_register(const char* name, unsigned limit_ms) __attribute__((weak));

static void mark(const char* text) {
  ssize_t written = write(-1, text, strlen(text));
  (void)written;
}

static void* end_at_once(void* unused) { return unused; }

static void make_thread(void) {
  pthread_t thread;
  victim_check(pthread_create(&thread, NULL, end_at_once, NULL) == 0, "pthread_create");
  pthread_join(thread, NULL);
}

static void do_first_thread(void) { make_thread(); }

static void do_dump_of_itself(void) {
  if (stackd_dump_now != NULL) stackd_dump_now(0);
}

static void do_heartbeat(void) {
  if (stackd_heartbeat_register != NULL) stackd_heartbeat_register("beat", 60000);
}

static void do_sigaction(void) {
  struct sigaction action = {.sa_handler = SIG_IGN};
  sigaction(SIGSEGV, &action, NULL);
}

static void do_close(void) { close(-1); }

static void do_fork(void) {
  pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, NULL, 0);
}

static void do_exec(void) { execl("/bin/true", "true", NULL); }

static void do_exit(void) { exit(0); }

static void do_rights(void) { prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0); }

static void do_filter(void) {
  struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog filter = {1, &allow};
  victim_check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0, "seccomp");
}

static void do_crash(void) { *(volatile int*)NULL = 0; }

static void do_idle(void) { poll(NULL, 0, IDLE_MS); }

static void wait_for_occasion(void) { usleep(LATER_US); }

static const struct {
  const char* name;
  void (*before)(void);
  void (*act)(void);
} things[] = {
    {"first_thread", NULL, do_first_thread},
    {"next_thread", make_thread, make_thread},
    {"dump_of_itself", NULL, do_dump_of_itself},
    {"heartbeat", NULL, do_heartbeat},
    {"sigaction", NULL, do_sigaction},
    {"close", NULL, do_close},
    {"close_later", wait_for_occasion, do_close},
    {"fork", NULL, do_fork},
    {"exec", NULL, do_exec},
    {"exit", NULL, do_exit},
    {"first_rights", NULL, do_rights},
    {"next_rights", do_rights, do_rights},
    {"rights_beside_the_helper", make_thread, do_rights},
    {"filter", do_rights, do_filter},
    {"after_filter", do_filter, do_sigaction},
    {"idle", NULL, do_idle},
    {"crash", NULL, do_crash},
};

int main(int argc, char** argv) {
  for (size_t i = 0; argc == 2 && i < sizeof things / sizeof things[0]; i++) {
    if (strcmp(argv[1], things[i].name) != 0) continue;
    if (things[i].before != NULL) things[i].before();
    mark("begin");
    things[i].act();
    mark("end");
    return 0;
  }
  return 2;
}
