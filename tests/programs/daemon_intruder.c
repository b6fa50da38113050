/* Code of an attacker in the daemon, preloaded. At SIGUSR2 it tries to do what the daemon never does. What came of each
 * try, 0 or an errno, it writes to a file that it has opened before main(). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int report = -1;

static int outcome(long result) { return result < 0 ? errno : 0; }

static int make_file(const char* folder) {
  char path[4096];
  snprintf(path, sizeof path, "%s/intruder", folder);
  return outcome(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

static int execute(const char* program) {
  /* Not fork(), which waits for locks that the interrupted thread may have. */
  const pid_t child = (pid_t)syscall(SYS_fork);
  if (child == 0) {
    execl(program, program, (char*)NULL);
    _exit(errno);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

static int connect_to(const char* port) {
  const struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  return outcome(connect(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), (const struct sockaddr*)&address, sizeof address));
}

static int write_memory(const char* pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%s/mem", pid);
  return outcome(open(path, O_RDWR | O_CLOEXEC));
}

static int read_link(const char* pid) {
  char path[64], target[256];
  snprintf(path, sizeof path, "/proc/%s/exe", pid);
  return outcome(readlink(path, target, sizeof target));
}

static void try_all(int number) {
  (void)number;
  const char* pid = getenv("INTRUDER_VICTIM");
  dprintf(report, "write below its folder %d\n", make_file(getenv("INTRUDER_OWN")));
  dprintf(report, "write elsewhere %d\n", make_file(getenv("INTRUDER_ELSEWHERE")));
  dprintf(report, "execute %d\n", execute("/bin/true"));
  dprintf(report, "connect %d\n", connect_to(getenv("INTRUDER_PORT")));
  dprintf(report, "signal %d\n", outcome(kill(atoi(pid), 0)));
  dprintf(report, "write memory %d\n", write_memory(pid));
  dprintf(report, "look at its program %d\n", read_link(pid));
  dprintf(report, "end\n");
}

__attribute__((constructor)) static void wait_for_signal(void) {
  report = open(getenv("INTRUDER_REPORT"), O_WRONLY | O_APPEND | O_CLOEXEC);
  signal(SIGUSR2, try_all);
}
