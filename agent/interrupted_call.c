#include "agent/interrupted_call.h"

#include <stdbool.h>
#include <ucontext.h>

#include "agent/syscall_arguments.h"

#define CALL_BYTES 2   /* syscall */
#define NUMBER_BYTES 5 /* mov $number,%eax */
#define RELOAD_BYTES 4 /* mov offset(%rsp),%edi: the C library's calls in programs with threads have it in between */
_Static_assert(STACKD_CALL_CODE_BYTES == NUMBER_BYTES + RELOAD_BYTES + CALL_BYTES, "the longest of these");
#define PAGE_BYTES 4096ull

/* Of one page all bytes can be read, or none. */
STACKD_HANDLER static bool can_read(uint64_t first, uint64_t end) {
  uint64_t first_page = first & ~(PAGE_BYTES - 1);
  uint64_t last_page = (end - 1) & ~(PAGE_BYTES - 1);
  return first < end && stackd_is_readable(first_page) && (last_page == first_page || stackd_is_readable(last_page));
}

STACKD_HANDLER static bool is_call(const uint8_t* code) { return code[0] == 0x0f && code[1] == 0x05; }

STACKD_HANDLER static bool is_reload(const uint8_t* code) { return code[0] == 0x8b && code[1] == 0x7c && code[2] == 0x24; }

/* `code` ends where the next instruction begins. -1 if it does not load a number. */
STACKD_HANDLER static int loaded_number(const uint8_t* code) {
  const uint8_t* move = code - NUMBER_BYTES;
  /* Numbers are small: bytes of another instruction do not look like one. */
  if (move[0] != 0xb8 || move[3] != 0 || move[4] != 0) return -1;
  uint32_t number = move[1] | (uint32_t)move[2] << 8;
  return number < STACKD_SYSCALL_NUMBERS ? (int)number : -1;
}

int stackd_syscall_number_in(const uint8_t code[STACKD_CALL_CODE_BYTES]) {
  const uint8_t* call = code + STACKD_CALL_CODE_BYTES - CALL_BYTES;
  if (!is_call(call)) return -1;
  int number = loaded_number(call);
  if (number < 0 && is_reload(call - RELOAD_BYTES)) number = loaded_number(call - RELOAD_BYTES);
  return number;
}

/* In place: no other thread takes away the code that this one is in. */
STACKD_HANDLER static int number_before(uint64_t rip) {
  uint64_t first = rip - STACKD_CALL_CODE_BYTES;
  return can_read(first, rip) ? stackd_syscall_number_in((const uint8_t*)first) : -1;
}

/* Whether the next instruction is `syscall`. */
STACKD_HANDLER static bool is_before_call(uint64_t rip) {
  return can_read(rip, rip + CALL_BYTES) && is_call((const uint8_t*)rip);
}

void stackd_interrupted_call(const void* ucontext, struct stackd_syscall* call) {
  const greg_t* registers = ((const ucontext_t*)ucontext)->uc_mcontext.gregs;
  uint64_t rip = (uint64_t)registers[REG_RIP];
  uint64_t rax = (uint64_t)registers[REG_RAX];
  int number = -1;
  if (rax == (uint64_t)-EINTR) {
    number = number_before(rip);
  } else if (rax < STACKD_SYSCALL_NUMBERS && is_before_call(rip)) {
    number = (int)rax;
  }
  *call = (struct stackd_syscall){0};
  if (number < 0) return;
  const uint64_t arguments[STACKD_SYSCALL_ARGUMENTS] = {(uint64_t)registers[REG_RDI], (uint64_t)registers[REG_RSI],
                                                        (uint64_t)registers[REG_RDX], (uint64_t)registers[REG_R10],
                                                        (uint64_t)registers[REG_R8],  (uint64_t)registers[REG_R9]};
  stackd_syscall_keep((uint32_t)number, arguments, call);
}
