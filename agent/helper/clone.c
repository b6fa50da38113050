#include "agent/helper/clone.h"

#include <errno.h>
#include <linux/sched.h>
#include <stddef.h>

#include "agent/sys/kernel.h"

#define STACK_BYTES (128u << 10)
#define GUARD_BYTES 4096u

/* The thread's storage, which no code of the agent uses. A function of the C library that did would write here, and not
 * where a thread of the program keeps its own. */
#define BELOW_BYTES 2048u
#define ABOVE_BYTES 4096u
static _Alignas(64) uint64_t thread_area[(BELOW_BYTES + ABOVE_BYTES) / 8];

/* glibc and musl find a thread by the word at its start; glibc has it a second time. */
#define SELF_WORD 0
#define SELF_WORD_AGAIN 2

static char* stack; /* of the last one: it has ended */

STACKD_HANDLER static uint64_t* make_thread_area(void) {
  uint64_t* self = thread_area + BELOW_BYTES / 8;
  self[SELF_WORD] = (uint64_t)self;
  self[SELF_WORD_AGAIN] = (uint64_t)self;
  return self;
}

STACKD_HANDLER static bool make_stack(void) {
  if (stack != NULL) return true;
  char* memory = stackd_map(NULL, GUARD_BYTES + STACK_BYTES, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  if (memory == NULL) return false;
  stackd_syscall6(SYS_mprotect, (long)memory, GUARD_BYTES, PROT_NONE, 0, 0, 0);
  stack = memory + GUARD_BYTES;
  return true;
}

int stackd_clone_thread(void (*run)(void), uint32_t* tid) {
  if (!make_stack()) return -ENOMEM;
  long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
               CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
  /* At a call, a stack is aligned to 16 bytes. */
  void* top = stack + STACK_BYTES;
  register long r10 __asm__("r10") = (long)tid;
  register long r8 __asm__("r8") = (long)make_thread_area();
  register void (*r9)(void) __asm__("r9") = run;
  long result;
  __asm__ volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      ".cfi_remember_state\n\t"
      ".cfi_undefined rip\n\t" /* the outermost frame */
      "xor %%ebp, %%ebp\n\t"
      "call *%%r9\n\t"
      "xor %%edi, %%edi\n\t"
      "mov %[exit], %%eax\n\t"
      "syscall\n\t"
      "hlt\n\t"
      ".cfi_restore_state\n"
      "1:"
      : "=a"(result)
      : "a"(SYS_clone), "D"(flags), "S"(top), "d"(tid), "r"(r10), "r"(r8), "r"(r9), [exit] "i"(SYS_exit)
      : "rcx", "r11", "memory", "cc");
  return result < 0 ? (int)result : 0;
}
