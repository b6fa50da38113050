/* Every thread holds a secret on its stack and in its registers while it is blocked: a string and a 64-bit number. Both are
 * made from what the test gives on stdin, so that they are in no file and in no argument.
 *
 * stdin: one line with the string (16 characters or more), one with the number in hex; at a third the program crashes. */
#include "tests/programs/victim.h"

static char secret_string[64];
static uint64_t secret_number;
static int silent_pipe[2];

/* Blocks in read with the number in every register that a system call leaves alone; with these it reads at null when
 * something has come. */
VICTIM_NOINLINE static void block_with_secret_registers(uint64_t number, int fd) {
  char byte;
  register uint64_t r8 __asm__("r8") = number;
  register uint64_t r9 __asm__("r9") = number;
  register uint64_t r10 __asm__("r10") = number;
  register uint64_t rbx __asm__("rbx") = number;
  register uint64_t r12 __asm__("r12") = number;
  register uint64_t r13 __asm__("r13") = number;
  register uint64_t r14 __asm__("r14") = number;
  register uint64_t r15 __asm__("r15") = number;
  long result;
  do {
    __asm__ volatile(
        "syscall\n\t"
        "test %%rax, %%rax\n\t"
        "jle 1f\n\t"
        "xor %%eax, %%eax\n\t"
        "mov (%%rax), %%eax\n"
        "1:"
        : "=a"(result)
        : "a"((long)SYS_read), "D"((long)fd), "S"(&byte), "d"(1ul), "r"(r8), "r"(r9), "r"(r10), "r"(rbx), "r"(r12),
          "r"(r13), "r"(r14), "r"(r15)
        : "rcx", "r11", "memory");
  } while (result < 0);
}

VICTIM_NOINLINE static void keep_on_stack(int depth, int fd) {
  /* Aligned and not: the filter looks at whole words, secrets do not keep to them. */
  struct {
    volatile uint64_t number[8];
    char text[64];
    char shifted[64 + 3];
  } secret;
  for (int i = 0; i < 8; ++i) secret.number[i] = secret_number;
  memcpy(secret.text, secret_string, sizeof secret.text);
  memcpy(secret.shifted + 3, secret_string, sizeof secret_string);
  __asm__ volatile("" ::"r"(&secret) : "memory");
  if (depth > 0)
    keep_on_stack(depth - 1, fd);
  else
    block_with_secret_registers(secret_number, fd);
  __asm__ volatile("" ::"r"(&secret) : "memory");
}

static void* keep(void* fd) {
  keep_on_stack(5, *(int*)fd);
  VICTIM_NOT_A_TAIL_CALL();
  return fd;
}

int main(void) {
  char number[64];
  victim_check(fgets(secret_string, sizeof secret_string, stdin) != NULL, "string");
  victim_check(fgets(number, sizeof number, stdin) != NULL, "number");
  secret_string[strcspn(secret_string, "\n")] = '\0';
  secret_number = strtoull(number, NULL, 16);
  victim_check(pipe(silent_pipe) == 0, "pipe");
  static victim_thread threads[16];
  for (int i = 0; i < 16; ++i) {
    victim_start(&threads[i], "keeper", keep, &silent_pipe[0], 256 << 10);
    victim_await_syscall(threads[i].tid, SYS_read);
  }
  victim_ready();
  int told = STDIN_FILENO;
  keep(&told);
  return 1;
}
