/* The least that a dump of one thread can be: two processes, shared memory, no checks, no lists, one fixed copy.
 *
 *   reader -> (futex) -> helper thread -> tgkill -> handler copies 4 KiB of its stack -> (futex) -> reader
 *
 *   bare_roundtrip spin  ROUNDS PAUSE_US   reader and helper watch their words, neither ever sleeps
 *   bare_roundtrip sleep ROUNDS PAUSE_US   both sleep in futex
 *
 * Prints the round trip as "min median p99", in ns. PAUSE_US lies between two rounds.
 */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COPY_BYTES 4096
/* On a machine whose cores are all busy a spinner must let the one it waits for run. */
#define SPINS_BEFORE_YIELD 20000

struct shared {
  _Alignas(64) unsigned question;
  _Alignas(64) unsigned answer;
  _Alignas(64) unsigned ready;
  _Alignas(64) char stack[COPY_BYTES];
};

static struct shared* shared;
static int spinning;
static pid_t watched_tid;

static unsigned long now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (unsigned long)now.tv_sec * 1000000000ul + (unsigned long)now.tv_nsec;
}

static void set_and_wake(unsigned* word, unsigned value) {
  __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
  if (!spinning) syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void await_change(unsigned* word, unsigned from) {
  for (int spins = 0; __atomic_load_n(word, __ATOMIC_ACQUIRE) == from; spins++) {
    if (!spinning) {
      syscall(SYS_futex, word, FUTEX_WAIT, from, NULL, NULL, 0);
    } else if (spins % SPINS_BEFORE_YIELD == SPINS_BEFORE_YIELD - 1) {
      sched_yield();
    } else {
      __builtin_ia32_pause();
    }
  }
}

static void on_signal(int number) {
  (void)number;
  int saved_errno = errno;
  memcpy(shared->stack, __builtin_frame_address(0), COPY_BYTES);
  set_and_wake(&shared->answer, shared->answer + 1);
  errno = saved_errno;
}

static void* helper_main(void* unused) {
  (void)unused;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL);
  unsigned seen = 0;
  __atomic_store_n(&shared->ready, 1, __ATOMIC_RELEASE);
  for (;;) {
    await_change(&shared->question, seen);
    seen++;
    syscall(SYS_tgkill, getpid(), watched_tid, SIGRTMIN);
  }
  return NULL;
}

/* So that there are 4 KiB to copy. */
__attribute__((noinline)) static void watched(void) {
  volatile char used[2 * COPY_BYTES];
  memset((char*)used, 1, sizeof used);
  for (;;) pause();
}

static int by_value(const void* a, const void* b) {
  unsigned long x = *(const unsigned long*)a, y = *(const unsigned long*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  spinning = strcmp(argv[1], "spin") == 0;
  size_t rounds = (size_t)atol(argv[2]);
  unsigned pause_us = (unsigned)atol(argv[3]);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGRTMIN, &action, NULL);
    watched_tid = (pid_t)syscall(SYS_gettid);
    pthread_t helper;
    pthread_create(&helper, NULL, helper_main, NULL);
    watched();
  }
  while (__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE) == 0) usleep(100);
  usleep(10000);
  unsigned long* took = malloc(rounds * sizeof *took);
  for (size_t i = 0; i < rounds; i++) {
    if (pause_us != 0) usleep(pause_us);
    unsigned before = __atomic_load_n(&shared->answer, __ATOMIC_RELAXED);
    unsigned long begin = now_ns();
    set_and_wake(&shared->question, shared->question + 1);
    await_change(&shared->answer, before);
    took[i] = now_ns() - begin;
  }
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  qsort(took, rounds, sizeof *took, by_value);
  printf("%lu %lu %lu\n", took[0], took[rounds / 2], took[rounds * 99 / 100]);
  return 0;
}
