/* watched_from_outside SPINNING: what a reader of the process could spoil, counted.
 *
 * SPINNING threads run without a call, and take signal 40, queued. One thread each sleeps in nanosleep, poll, epoll_wait, a
 * futex and sigtimedwait, with hours to go. Asked by a line on standard input, the program prints
 *
 *   TAKEN EARLY MOVED
 *
 * signals that were taken, sleeps that ended before their time, and spinning threads that have got on since it was asked.
 */
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <time.h>

#include "tests/programs/victim.h"

#define STACK_BYTES (64 << 10)
#define MAX_SPINNING 64
#define COUNTED_SIGNAL 40

static volatile uint64_t rounds[MAX_SPINNING];
static int taken, early, futex_word;
static const struct timespec kHours = {36000, 0};

static void count(int number) {
  (void)number;
  __atomic_fetch_add(&taken, 1, __ATOMIC_RELAXED);
}

VICTIM_NOINLINE static void* spin(void* number) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, COUNTED_SIGNAL);
  pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
  for (;;) rounds[(uintptr_t)number]++;
  return number;
}

__attribute__((noreturn)) static void* ended(void) {
  __atomic_fetch_add(&early, 1, __ATOMIC_RELAXED);
  for (;;) pause();
}

static void* sleep_in_nanosleep(void* unused) {
  (void)unused;
  nanosleep(&kHours, NULL);
  return ended();
}

static void* sleep_in_poll(void* unused) {
  (void)unused;
  poll(NULL, 0, 36000000);
  return ended();
}

static void* sleep_in_epoll(void* unused) {
  (void)unused;
  struct epoll_event event;
  epoll_wait(epoll_create1(EPOLL_CLOEXEC), &event, 1, 36000000);
  return ended();
}

static void* sleep_in_futex(void* unused) {
  (void)unused;
  syscall(SYS_futex, &futex_word, FUTEX_WAIT_PRIVATE, 0, &kHours, NULL, 0);
  return ended();
}

static void* sleep_in_sigtimedwait(void* unused) {
  (void)unused;
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR2);
  sigtimedwait(&signals, NULL, &kHours);
  return ended();
}

static int count_moved(int spinning) {
  uint64_t before[MAX_SPINNING];
  int moved = 0;
  for (int i = 0; i < spinning; i++) before[i] = rounds[i];
  /* A thread that was left stopped never moves; one that waits for a core does within this time. */
  for (int tries = 0; tries < 2000 && moved < spinning; tries++) {
    usleep(1000);
    moved = 0;
    for (int i = 0; i < spinning; i++) moved += rounds[i] != before[i];
  }
  return moved;
}

int main(int argc, char** argv) {
  static victim_thread spinners[MAX_SPINNING], sleepers[5];
  static void* (*const bodies[])(void*) = {sleep_in_nanosleep, sleep_in_poll, sleep_in_epoll, sleep_in_futex,
                                           sleep_in_sigtimedwait};
  static const char* const names[] = {"nanosleep", "poll", "epoll", "futex", "sigtimedwait"};
  static const long calls[] = {SYS_clock_nanosleep, SYS_poll, SYS_epoll_wait, SYS_futex, SYS_rt_sigtimedwait};
  int spinning = argc > 1 ? atoi(argv[1]) : 0;
  if (spinning > MAX_SPINNING) return 2;
  struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
  sigaction(COUNTED_SIGNAL, &action, NULL);
  sigset_t signals;
  sigfillset(&signals);
  pthread_sigmask(SIG_BLOCK, &signals, NULL);
  for (int i = 0; i < 5; i++) victim_start(&sleepers[i], names[i], bodies[i], NULL, STACK_BYTES);
  for (int i = 0; i < 5; i++) victim_await_syscall(sleepers[i].tid, calls[i]);
  for (int i = 0; i < spinning; i++) victim_start(&spinners[i], "spins", spin, (void*)(uintptr_t)i, STACK_BYTES);
  victim_ready();
  char line[64];
  while (fgets(line, sizeof line, stdin) != NULL) {
    int moved = count_moved(spinning);
    printf("%d %d %d\n", __atomic_load_n(&taken, __ATOMIC_RELAXED), __atomic_load_n(&early, __ATOMIC_RELAXED), moved);
    fflush(stdout);
  }
}
