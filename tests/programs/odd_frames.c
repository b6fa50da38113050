/* Frames whose size is known at run time only, and frames with values in all callee-saved registers. An unwinder that has
 * no registers must find each by what callees saved, or end the stack with a reason.
 *
 * One thread for each chain of calls. Sizes come from volatile variables, so that no compiler knows them. */
#include <alloca.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/select.h>
#include <time.h>

#include "tests/programs/victim.h"
#ifdef WITH_AGENT
#include "agent/include/stackd/agent.h"
#endif

enum { kDeep = 24 };

static int silent_pipe[2];
static sem_t never_posted;
static pthread_mutex_t held_by_main = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static volatile int size = 100;
static volatile long seed = 3;

typedef void (*wait_function)(void);

VICTIM_NOINLINE static void in_read(void) {
  char byte;
  while (read(silent_pipe[0], &byte, 1) < 0) {
  }
  VICTIM_NOT_A_TAIL_CALL();
}

VICTIM_NOINLINE static void in_poll(void) {
  struct pollfd fd = {.fd = silent_pipe[0], .events = POLLIN};
  while (poll(&fd, 1, -1) < 0) {
  }
  VICTIM_NOT_A_TAIL_CALL();
}

VICTIM_NOINLINE static void in_select(void) {
  fd_set fds;
  FD_ZERO(&fds);
  FD_SET(silent_pipe[0], &fds);
  select(silent_pipe[0] + 1, &fds, NULL, NULL, NULL);
  VICTIM_NOT_A_TAIL_CALL();
}

VICTIM_NOINLINE static void in_nanosleep(void) {
  const struct timespec hour = {.tv_sec = 3600};
  while (nanosleep(&hour, NULL) < 0) {
  }
  VICTIM_NOT_A_TAIL_CALL();
}

VICTIM_NOINLINE static void in_sem_wait(void) {
  while (sem_wait(&never_posted) < 0) {
  }
  VICTIM_NOT_A_TAIL_CALL();
}

VICTIM_NOINLINE static void in_mutex_lock(void) {
  pthread_mutex_lock(&held_by_main);
  VICTIM_NOT_A_TAIL_CALL();
}

VICTIM_NOINLINE static void in_cond_wait(void) {
  pthread_mutex_lock(&mutex);
  for (;;) pthread_cond_wait(&never, &mutex);
}

/* Needs all six registers that a callee must save, across the call. */
VICTIM_NOINLINE static long with_live_registers(wait_function wait, int depth) {
  const long a = seed, b = seed + 1, c = seed + 2, d = seed + 3, e = seed + 4, f = seed + 5;
  long below = 0;
  if (depth > 0) {
    below = with_live_registers(wait, depth - 1);
  } else {
    wait();
  }
  return below + (a ^ b) * (c ^ d) * (e ^ f) + a + b + c + d + e + f;
}

VICTIM_NOINLINE static long with_array(wait_function wait, int depth) {
  long values[size + depth];
  for (int i = 0; i < size; ++i) values[i] = seed * i;
  if (depth > 0) {
    values[1] += with_array(wait, depth - 1);
  } else {
    wait();
  }
  return values[0] + values[1] + depth;
}

/* Two arrays, of which the second ends before the call, and five values that live across it. */
VICTIM_NOINLINE static long with_arrays_and_registers(wait_function wait, int depth) {
  const long a = seed, b = seed + 1, c = seed + 2, d = seed + 3, e = seed + 4;
  long first[size];
  memset(first, 1, sizeof first);
  long sum = 0;
  {
    volatile char second[size * 3 + depth];
    for (int i = 0; i < size; ++i) second[i] = (char)first[i];
    sum += second[size / 2];
  }
  sum += depth > 0 ? with_arrays_and_registers(wait, depth - 1) : with_live_registers(wait, 1);
  return sum + first[0] + (a ^ b) + (b ^ c) * d + e;
}

VICTIM_NOINLINE static long with_alloca_in_loop(wait_function wait, int depth) {
  volatile char* blocks[4];
  for (int i = 0; i < 4; ++i) {
    blocks[i] = alloca((size_t)(size * (i + 1) + depth));
    blocks[i][0] = (char)i;
  }
  const long below = depth > 0 ? with_alloca_in_loop(wait, depth - 1) : with_array(wait, 2);
  return below + blocks[0][0] + blocks[3][0];
}

/* Takes memory from the stack in one of its two ways only. */
VICTIM_NOINLINE static long with_alloca_in_branch(wait_function wait, int depth) {
  volatile char* block = NULL;
  if (seed % 2 == depth % 2) {
    block = alloca((size_t)size);
    block[0] = 1;
  }
  const long below = depth > 0 ? with_alloca_in_branch(wait, depth - 1) : with_live_registers(wait, 0);
  return below + (block != NULL ? block[0] : 2);
}

/* Stands on a stack that was aligned, with memory of unknown size above. */
VICTIM_NOINLINE static long with_aligned_array(wait_function wait, int depth) {
  char aligned[192] __attribute__((aligned(64)));
  long values[size];
  __asm__ volatile("" ::"r"(aligned), "r"(values) : "memory");
  const long below = depth > 0 ? with_aligned_array(wait, depth - 1) : with_arrays_and_registers(wait, 1);
  __asm__ volatile("" ::"r"(aligned), "r"(values) : "memory");
  return below + depth;
}

/* An array by the argument's size, larger each time: frames of 8 bytes to 30 KiB. */
VICTIM_NOINLINE static long with_growing_array(wait_function wait, int depth) {
  volatile char values[(size_t)1 << (kDeep - depth) % 15];
  values[0] = (char)depth;
  const long below = depth > 0 ? with_growing_array(wait, depth - 1) : with_alloca_in_branch(wait, 1);
  return below + values[0];
}

/* Stands on a stack that was aligned, and has no other memory of unknown size. */
VICTIM_NOINLINE static long with_aligned_block(wait_function wait, int depth) {
  char aligned[192] __attribute__((aligned(64)));
  __asm__ volatile("" ::"r"(aligned) : "memory");
  wait();
  __asm__ volatile("" ::"r"(aligned) : "memory");
  return depth;
}

/* Its frame is larger than what the function below can have moved the stack by. */
VICTIM_NOINLINE static long calls_aligned(wait_function wait, int depth) {
  char values[200];
  __asm__ volatile("" ::"r"(values) : "memory");
  const long below = with_aligned_block(wait, depth);
  __asm__ volatile("" ::"r"(values) : "memory");
  return below;
}

/* Nothing but the call below leads here. */
VICTIM_NOINLINE static long called_from_one_place(wait_function wait, int depth) {
  volatile char values[size + depth];
  values[0] = 1;
  wait();
  return values[0] + depth;
}

VICTIM_NOINLINE static long calls_one(wait_function wait, int depth) { return called_from_one_place(wait, depth) + seed; }

typedef struct chain {
  const char* name;
  long (*first)(wait_function, int);
  int depth;
  wait_function wait;
  long syscall;
} chain;

static void* run(void* argument) {
  const chain* one = argument;
  seed = one->first(one->wait, one->depth);
  return NULL;
}

int main(void) {
#ifdef WITH_AGENT
  victim_check(stackd_install() == 0, "stackd_install");
#endif
  victim_check(pipe(silent_pipe) == 0, "pipe");
  sem_init(&never_posted, 0, 0);
  pthread_mutex_lock(&held_by_main);

  static chain chains[] = {
      {"registers", with_live_registers, 0, in_read, SYS_read},
      {"registers-deep", with_live_registers, kDeep, in_mutex_lock, SYS_futex},
      {"array", with_array, 0, in_poll, SYS_poll},
      {"array-deep", with_array, kDeep, in_cond_wait, SYS_futex},
      {"arrays", with_arrays_and_registers, 3, in_nanosleep, SYS_clock_nanosleep},
      {"loop", with_alloca_in_loop, 0, in_sem_wait, SYS_futex},
      {"loop-deep", with_alloca_in_loop, kDeep, in_read, SYS_read},
      {"branch", with_alloca_in_branch, 0, in_select, SYS_pselect6},
      {"branch-deep", with_alloca_in_branch, kDeep, in_cond_wait, SYS_futex},
      {"aligned", with_aligned_array, 0, in_mutex_lock, SYS_futex},
      {"aligned-deep", with_aligned_array, kDeep, in_poll, SYS_poll},
      {"growing", with_growing_array, kDeep, in_nanosleep, SYS_clock_nanosleep},
      {"block", calls_aligned, 0, in_poll, SYS_poll},
      {"one", calls_one, 0, in_poll, SYS_poll},
  };
  enum { kChains = sizeof chains / sizeof chains[0] };
  static victim_thread threads[kChains];
  for (int i = 0; i < kChains; ++i) {
    victim_start(&threads[i], chains[i].name, run, &chains[i], 1 << 20);
    victim_await_syscall(threads[i].tid, chains[i].syscall);
  }
  victim_ready();
  victim_wait_for_ever();
}
