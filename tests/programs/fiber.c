/* A fiber by swapcontext: the thread is blocked while it runs on a stack that the kernel and pthread know nothing of. */
#include <sys/mman.h>
#include <ucontext.h>

#include "tests/programs/victim.h"

static int silent_pipe[2];

typedef struct fiber_pair {
  ucontext_t scheduler;
  ucontext_t fiber;
} fiber_pair;

VICTIM_NOINLINE static void fiber_waits(void) {
  char byte;
  while (read(silent_pipe[0], &byte, 1) < 0) {
  }
  VICTIM_NOT_A_TAIL_CALL();
}

VICTIM_NOINLINE static void fiber_main(void) {
  fiber_waits();
  VICTIM_NOT_A_TAIL_CALL();
}

VICTIM_NOINLINE static void* schedule(void* stack) {
  static fiber_pair pair;
  getcontext(&pair.fiber);
  pair.fiber.uc_stack.ss_sp = stack;
  pair.fiber.uc_stack.ss_size = 256 << 10;
  pair.fiber.uc_link = &pair.scheduler;
  makecontext(&pair.fiber, fiber_main, 0);
  swapcontext(&pair.scheduler, &pair.fiber);
  return NULL;
}

int main(void) {
  victim_check(pipe(silent_pipe) == 0, "pipe");
  void* stack = mmap(NULL, 256 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  victim_check(stack != MAP_FAILED, "mmap");
  static victim_thread thread;
  victim_start(&thread, "fiber", schedule, stack, 256 << 10);
  victim_await_syscall(thread.tid, SYS_read);
  victim_ready();
  victim_wait_for_ever();
}
