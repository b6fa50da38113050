/* Starts COUNT children under the agent. Has them crash when a line comes on stdin: all at once, or (SPREAD_MS) each at a
 * moment of its own. Says "ready" when each child waits for that. At the end says for each "PID STATUS HELD_US": how it
 * ended, and how long after its fault its end was noticed.
 *
 *     crash_together AGENT COUNT SPREAD_MS
 */
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "victim.h"

enum { START_FD = 100, TIMES_FD = 101 };

extern char** environ;

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

VICTIM_NOINLINE void crash_now(volatile int* nowhere) { *nowhere = 1; }

static int child(int index, int spread_ms) {
  char byte;
  victim_check(read(START_FD, &byte, 1) == 0, "read");
  if (spread_ms > 0) usleep((useconds_t)((uint32_t)index * 7919u % (uint32_t)spread_ms) * 1000u);
  uint64_t fault_ns = now_ns();
  victim_check(pwrite(TIMES_FD, &fault_ns, sizeof fault_ns, index * 8) == 8, "pwrite");
  crash_now((int*)8);
  return 0;
}

static pid_t start(const char* agent, int index, const char* spread_ms) {
  char number[16], preload[4096];
  snprintf(number, sizeof number, "%d", index);
  snprintf(preload, sizeof preload, "LD_PRELOAD=%s", agent);
  char self[] = "/proc/self/exe", mode[] = "--child";
  char* arguments[] = {self, mode, number, (char*)spread_ms, NULL};
  char* variables[512] = {preload};
  for (int i = 0; environ[i] != NULL && i < 510; i++) variables[i + 1] = environ[i];
  pid_t pid;
  victim_check(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, variables) == 0, "posix_spawn");
  return pid;
}

int main(int argc, char** argv) {
  if (argc == 4 && strcmp(argv[1], "--child") == 0) return child(atoi(argv[2]), atoi(argv[3]));
  int count = atoi(argv[2]), start_pipe[2];
  victim_check(pipe(start_pipe) == 0 && dup2(start_pipe[0], START_FD) == START_FD, "pipe");
  victim_check(fcntl(start_pipe[1], F_SETFD, FD_CLOEXEC) == 0, "fcntl");
  int times = memfd_create("times", 0);
  victim_check(ftruncate(times, count * 8) == 0 && dup2(times, TIMES_FD) == TIMES_FD, "times");
  pid_t* pids = calloc((size_t)count, sizeof *pids);
  for (int i = 0; i < count; i++) pids[i] = start(argv[1], i, argv[3]);
  for (int i = 0; i < count; i++) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/syscall", pids[i]);
    victim_await_syscall_file(path, SYS_read);
  }
  printf("ready\n");
  fflush(stdout);
  for (int i = 0; i < count; i++) printf("pid %d\n", pids[i]);
  printf("started\n");
  fflush(stdout);
  getchar();
  /* Or the end of a child is noticed when this process gets a CPU, among all the others. Who may not, may not. */
  sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1});
  close(start_pipe[1]);
  for (int left = count; left > 0; left--) {
    int status;
    pid_t pid = wait(&status);
    uint64_t end_ns = now_ns(), fault_ns = 0;
    int index = 0;
    while (index < count && pids[index] != pid) index++;
    victim_check(pread(TIMES_FD, &fault_ns, sizeof fault_ns, index * 8) == 8, "pread");
    printf("%d %d %lld\n", pid, status, (long long)(end_ns - fault_ns) / 1000);
  }
  printf("over\n");
  fflush(stdout);
  return 0;
}
