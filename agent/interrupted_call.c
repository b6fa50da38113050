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

/* The end of glibc's __syscall_cancel_arch, where all calls that can be cancelled are made from 2.41 on: assembler, so that
 * it is the same in each build. The register that had the number has an argument by then. */
static const uint8_t kCancellableCall[] = {0x4c, 0x8b, 0x44, 0x24, 0x08, 0x4c, 0x8b, 0x4c, 0x24,
                                           0x10, 0x4c, 0x89, 0x5c, 0x24, 0x08, 0x0f, 0x05};
#define CALL_RELATIVE_BYTES 5
/* Of the one function that calls it, before that call: it loads the number from its arguments, which are on the stack. */
#define CALLER_BYTES 32

STACKD_HANDLER static bool is_cancellable_call(uint64_t rip) {
  uint64_t first = rip - sizeof(kCancellableCall);
  if (!can_read(first, rip)) return false;
  for (uint32_t i = 0; i < sizeof(kCancellableCall); i++) {
    if (((const uint8_t*)first)[i] != kCancellableCall[i]) return false;
  }
  return true;
}

STACKD_HANDLER static int number_at(uint64_t address) {
  if (!can_read(address, address + 8)) return -1;
  uint64_t number = *(const uint64_t*)address;
  return number < STACKD_SYSCALL_NUMBERS ? (int)number : -1;
}

/* What `mov offset(%rsp),%register` or, in builds with frame pointers, `mov offset(%rbp),%register` loads. */
STACKD_HANDLER static int number_loaded_by(const uint8_t* code, uint8_t register_bits, uint64_t rsp, uint64_t rbp) {
  if (code[0] != 0x48 || code[1] != 0x8b) return -1;
  if (code[2] == (0x44 | register_bits) && code[3] == 0x24) return number_at(rsp + (uint64_t)(int64_t)(int8_t)code[4]);
  if (code[2] == (0x45 | register_bits)) return number_at(rbp + (uint64_t)(int64_t)(int8_t)code[3]);
  return -1;
}
#define INTO_RAX 0x00
#define INTO_RSI 0x30

STACKD_HANDLER static int number_of_cancellable(uint64_t rsp, uint64_t rbp) {
  if (!can_read(rsp, rsp + 8)) return -1;
  uint64_t back = *(const uint64_t*)rsp;
  if (!can_read(back - CALLER_BYTES, back)) return -1;
  const uint8_t* call = (const uint8_t*)back - CALL_RELATIVE_BYTES;
  if (call[0] != 0xe8) return -1;
  for (const uint8_t* code = call - CALL_RELATIVE_BYTES; code >= (const uint8_t*)back - CALLER_BYTES; code--) {
    int number = number_loaded_by(code, INTO_RSI, rsp + 8, rbp);
    if (number >= 0) return number;
  }
  return -1;
}

/* Where there is one thread only that function makes the call itself. */
STACKD_HANDLER static int number_loaded_before(uint64_t rip, uint64_t rsp, uint64_t rbp) {
  uint64_t first = rip - CALL_BYTES - 5;
  if (!can_read(first, rip) || !is_call((const uint8_t*)rip - CALL_BYTES)) return -1;
  int number = number_loaded_by((const uint8_t*)first, INTO_RAX, rsp, rbp);
  return number >= 0 ? number : number_loaded_by((const uint8_t*)first + 1, INTO_RAX, rsp, rbp);
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
    if (number < 0) {
      uint64_t rsp = (uint64_t)registers[REG_RSP], rbp = (uint64_t)registers[REG_RBP];
      number = is_cancellable_call(rip) ? number_of_cancellable(rsp, rbp) : number_loaded_before(rip, rsp, rbp);
    }
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
