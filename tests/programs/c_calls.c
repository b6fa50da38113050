/* C as compilers like it: -O2 without frame pointers, function pointers, callbacks out of libc, alloca, large frames,
 * aligned frames. A noreturn function stands at the end of its caller, and calls vanish into their caller.
 *
 * One thread for each way to block, each behind its own chain of calls. */
#include <alloca.h>
#include <poll.h>
#include <semaphore.h>
#include <time.h>

#include "tests/programs/victim.h"

static pthread_mutex_t held_by_main = PTHREAD_MUTEX_INITIALIZER;
static sem_t never_posted;
static int silent_pipe[2];

/* Inlined into its callers: a frame that exists in the debug information only. */
static inline __attribute__((always_inline)) void read_one_byte(int fd) {
  char byte;
  while (read(fd, &byte, 1) < 0) {
  }
}

/* A call through a table of function pointers. */
typedef void (*operation)(int depth);
VICTIM_NOINLINE static void operation_block(int depth) {
  read_one_byte(silent_pipe[0]);
  if (depth > 1000) abort();
}
VICTIM_NOINLINE static void operation_descend(int depth);
static const operation operations[] = {operation_block, operation_descend};
VICTIM_NOINLINE static void operation_descend(int depth) {
  volatile int index = depth > 0;
  operations[index](depth - 1);
  VICTIM_NOT_A_TAIL_CALL();
}
static void* through_function_pointers(void* unused) {
  operation_descend(10);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

/* A callback from libc's own code: qsort calls back, the comparison blocks. */
VICTIM_NOINLINE static int compare_and_block(const void* left, const void* right) {
  pthread_mutex_lock(&held_by_main);
  return *(const int*)left - *(const int*)right;
}
static void* inside_qsort(void* unused) {
  int values[64];
  for (int i = 0; i < 64; ++i) values[i] = 64 - i;
  qsort(values, 64, sizeof values[0], compare_and_block);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

/* Frames whose size the compiler does not know: the unwind tables go by rbp there. */
VICTIM_NOINLINE static void with_alloca(volatile int bytes) {
  char* buffer = alloca((size_t)bytes);
  memset(buffer, 0, (size_t)bytes);
  while (sem_wait(&never_posted) < 0) {
  }
  VICTIM_NOT_A_TAIL_CALL();
}
VICTIM_NOINLINE static void with_aligned_frame(int bytes) {
  /* More than the ABI's 16 bytes: the compiler realigns rsp and finds its caller by DW_CFA_def_cfa_expression. */
  char aligned[256] __attribute__((aligned(128)));
  __asm__ volatile("" ::"r"(aligned) : "memory");
  with_alloca(bytes);
  __asm__ volatile("" ::"r"(aligned) : "memory");
}
static void* through_odd_frames(void* unused) {
  with_aligned_frame(777);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

/* 100 KiB in one frame: more than a dump with an 8 KiB limit would have copied. */
VICTIM_NOINLINE static void with_large_frame(void) {
  volatile char large[100 << 10];
  large[0] = 1;
  struct pollfd fd = {.fd = silent_pipe[0], .events = POLLIN};
  while (poll(&fd, 1, -1) < 0) {
  }
  large[sizeof large - 1] = 1;
}
static void* through_a_large_frame(void* unused) {
  with_large_frame();
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

/* The call is the last instruction of its caller: the return address lies in the next function. */
__attribute__((noreturn)) VICTIM_NOINLINE static void never_returns(void) {
  for (;;) {
    struct timespec hour = {.tv_sec = 3600};
    nanosleep(&hour, NULL);
  }
}
VICTIM_NOINLINE static void ends_in_a_call(volatile int* value) {
  *value = 1;
  never_returns();
}
static void* through_a_noreturn_call(void* unused) {
  volatile int value = 0;
  ends_in_a_call(&value);
  return unused;
}

/* Nothing but a chain long enough for caches to matter. */
VICTIM_NOINLINE static int recurse(volatile int depth) {
  if (depth == 0) {
    read_one_byte(silent_pipe[0]);
    return 0;
  }
  return recurse(depth - 1) + 1;
}
static void* through_recursion(void* unused) {
  if (recurse(200) < 0) abort();
  return unused;
}

int main(void) {
  victim_check(pipe(silent_pipe) == 0, "pipe");
  sem_init(&never_posted, 0, 0);
  pthread_mutex_lock(&held_by_main);

  static const struct {
    const char* name;
    void* (*body)(void*);
    long syscall;
  } cases[] = {
      {"pointers", through_function_pointers, SYS_read},
      {"qsort", inside_qsort, SYS_futex},
      {"odd-frames", through_odd_frames, SYS_futex},
      {"large-frame", through_a_large_frame, SYS_poll},
      {"noreturn", through_a_noreturn_call, SYS_clock_nanosleep},
      {"recursion", through_recursion, SYS_read},
  };
  enum { kCases = sizeof cases / sizeof cases[0] };
  static victim_thread threads[kCases];
  for (int i = 0; i < kCases; ++i) {
    victim_start(&threads[i], cases[i].name, cases[i].body, NULL, 512 << 10);
    victim_await_syscall(threads[i].tid, cases[i].syscall);
  }
  victim_ready();
  victim_wait_for_ever();
}
