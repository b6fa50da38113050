/* liar: a program with three threads that lie about their stacks.
 * 1. Its stack is written to all the time, with addresses of code and of itself. It runs and sleeps in turns.
 * 2. Its stack pointer is at an address without memory.
 * 3. Its stack has no byte left above it. */
#include <sys/mman.h>

#include "tests/programs/victim.h"

#define STACK_BYTES (64 << 10)
#define PAGE_BYTES 4096

static uint64_t* volatile shown;

VICTIM_NOINLINE static void* changes(void* unused) {
  uint64_t words[1024];
  shown = words;
  for (uint64_t i = 0;; i++) {
    words[i % 1024] = i % 2 ? (uint64_t)&changes + i % 64 : (uint64_t)&words[(i * 7919) % 1024];
    if (i % 100000 == 0) usleep(10);
  }
  return unused;
}

/* pause(), with the stack pointer at `stack`. */
VICTIM_NOINLINE static void pause_with_stack(uint64_t stack) {
  __asm__ volatile(
      "mov %0, %%rsp\n"
      "1: mov $34, %%eax\n"
      "syscall\n"
      "jmp 1b\n"
      :
      : "r"(stack)
      : "rax", "rcx", "r11", "memory");
}

static void* has_no_stack(void* unused) {
  pause_with_stack(0x10);
  return unused;
}

static void* is_at_the_end(void* unused) {
  char* page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  pause_with_stack((uint64_t)page + PAGE_BYTES);
  return unused;
}

int main(void) {
  static victim_thread changer, nowhere, end;
  victim_start(&nowhere, "nowhere", has_no_stack, NULL, STACK_BYTES);
  victim_start(&end, "end", is_at_the_end, NULL, STACK_BYTES);
  victim_await_syscall(nowhere.tid, SYS_pause);
  victim_await_syscall(end.tid, SYS_pause);
  victim_start(&changer, "changes", changes, NULL, STACK_BYTES);
  victim_ready();
  victim_wait_for_ever();
}
