/* small_stack [futex|running]: threads on the smallest stacks that there are, with 1 KiB left above the guard page. One has
 * an alternate stack of its own, one has not. They sleep in read(), or in a futex, which a signal does not end, or run.
 * Answers a line from stdin and ends with 7. */
#include <alloca.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "victim.h"

enum { LEFT_BYTES = 1024, GUARD_BYTES = 4096 };

static int go_on[2];
static int word; /* not 0: the threads may go on */
static int by_a_futex;
static int by_running;

typedef struct small_stack {
  char* lowest;
  int with_alternate;
  pid_t tid;
  int is_deep;
} small_stack;

static VICTIM_NOINLINE void wait_deep(small_stack* stack) {
  char here;
  size_t above = (size_t)(&here - stack->lowest);
  volatile char* filled = alloca(above - LEFT_BYTES);
  filled[0] = 1;
  __atomic_store_n(&stack->is_deep, 1, __ATOMIC_RELEASE);
  while (by_running) {
    if (__atomic_load_n(&word, __ATOMIC_ACQUIRE) != 0) return;
  }
  /* By hand: no frame of the C library fits below. */
  char byte;
  long number = by_a_futex ? SYS_futex : SYS_read;
  long first = by_a_futex ? (long)&word : go_on[0];
  long second = by_a_futex ? FUTEX_WAIT_PRIVATE : (long)&byte;
  long third = by_a_futex ? 0 : 1;
  register long no_timeout __asm__("r10") = 0;
  long got;
  do {
    got = number;
    __asm__ volatile("syscall" : "+a"(got) : "D"(first), "S"(second), "d"(third), "r"(no_timeout) : "rcx", "r11", "memory");
  } while (got == -4 /* EINTR */ || (by_a_futex && __atomic_load_n(&word, __ATOMIC_ACQUIRE) == 0));
  filled[above - LEFT_BYTES - 1] = (char)got;
}

static void* sleep_deep(void* argument) {
  small_stack* stack = argument;
  if (stack->with_alternate) {
    static char alternate[16384];
    stack_t own = {.ss_sp = alternate, .ss_size = sizeof alternate};
    victim_check(sigaltstack(&own, NULL) == 0, "sigaltstack");
  }
  __atomic_store_n(&stack->tid, victim_tid(), __ATOMIC_RELEASE);
  wait_deep(stack);
  return NULL;
}

int main(int argc, char** argv) {
  by_a_futex = argc > 1 && strcmp(argv[1], "futex") == 0;
  by_running = argc > 1 && strcmp(argv[1], "running") == 0;
  static small_stack stacks[2] = {{.with_alternate = 0}, {.with_alternate = 1}};
  pthread_t threads[2];
  size_t bytes = (size_t)PTHREAD_STACK_MIN;
  victim_check(pipe(go_on) == 0, "pipe");
  for (int i = 0; i < 2; i++) {
    char* memory = mmap(NULL, GUARD_BYTES + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    victim_check(memory != MAP_FAILED && mprotect(memory, GUARD_BYTES, PROT_NONE) == 0, "mmap");
    stacks[i].lowest = memory + GUARD_BYTES;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    victim_check(pthread_attr_setstack(&attributes, stacks[i].lowest, bytes) == 0, "pthread_attr_setstack");
    victim_check(pthread_create(&threads[i], &attributes, sleep_deep, &stacks[i]) == 0, "pthread_create");
    while (__atomic_load_n(&stacks[i].is_deep, __ATOMIC_ACQUIRE) == 0) usleep(50);
    if (!by_running) victim_await_syscall(stacks[i].tid, by_a_futex ? SYS_futex : SYS_read);
  }
  printf("ready %d %d\n", stacks[0].tid, stacks[1].tid);
  fflush(stdout);
  char line[64];
  if (fgets(line, sizeof line, stdin) == NULL) return 3;
  if (write(go_on[1], "ab", 2) != 2) return 4;
  __atomic_store_n(&word, 1, __ATOMIC_RELEASE);
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 2, NULL, NULL, 0);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  fputs(line, stdout);
  return 7;
}
