#include "agent/capture/interrupted_syscall.h"

#include <stdbool.h>
#include <ucontext.h>

#include "agent/capture/syscall_arguments.h"

#define CALL_BYTES 2   /* syscall */
#define NUMBER_BYTES 5 /* mov $number,%eax */
#define RELOAD_BYTES 4 /* mov offset(%rsp),%edi: the C library's calls in programs with threads have it in between */
_Static_assert(STACKD_CALL_CODE_BYTES == NUMBER_BYTES + RELOAD_BYTES + CALL_BYTES, "the longest of these");
#define PAGE_BYTES 4096ull

/* A page can be read as a whole, or not at all. */
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

/* --- Numbers on the stack ---
 *
 * From 2.41 on glibc makes its calls that can be cancelled in two functions, which get the number as an argument. It is the
 * seventh of __internal_syscall_cancel, which is on the stack. That function makes the call itself where the thread cannot
 * be cancelled, or has it made by __syscall_cancel_arch. The latter keeps the number nowhere: the caller's code tells where
 * it took it from. Read off glibc 2.43's code; with a frame pointer where distributions build so. */

#define LOAD_BY_RSP_BYTES 5 /* mov offset(%rsp),%reg, offset of one byte */
#define LOAD_BY_RBP_BYTES 4 /* mov offset(%rbp),%reg */
#define SAVE_BYTES 5        /* mov %r11,0x8(%rsp): what __syscall_cancel_arch does last */
#define CALLED_BYTES 5      /* call */
#define MOVE_BYTES 3        /* mov %reg,%reg */
#define MAX_MOVES 6         /* between the load and the call, one for each other argument in a register */
#define CALLER_BYTES (LOAD_BY_RSP_BYTES + MAX_MOVES * MOVE_BYTES + CALLED_BYTES)
#define TO_RAX 0
#define TO_RSI 6

struct frame {
  uint64_t rsp;
  uint64_t rbp; /* 0: not known */
};

/* What is above rsp and near it stays, as the code does, while the thread that it belongs to is here. */
#define NEAR_BYTES 256u

STACKD_HANDLER static bool read_near(int32_t pid, bool is_own, uint64_t address, void* out, uint32_t size_bytes) {
  if (!is_own) return stackd_read_memory(pid, address, out, size_bytes) == (long)size_bytes;
  if (!can_read(address, address + size_bytes)) return false;
  for (uint32_t i = 0; i < size_bytes; i++) ((uint8_t*)out)[i] = ((const uint8_t*)address)[i];
  return true;
}

/* Where the instruction that ends at `end` loads register `to` from; 0 if it does not. */
STACKD_HANDLER static uint64_t loaded_from(const uint8_t* end, uint8_t to, struct frame frame) {
  const uint8_t* by_rsp = end - LOAD_BY_RSP_BYTES;
  const uint8_t* by_rbp = end - LOAD_BY_RBP_BYTES;
  uint8_t register_bits = (uint8_t)(to << 3);
  if (by_rsp[0] == 0x48 && by_rsp[1] == 0x8b && by_rsp[2] == (0x44 | register_bits) && by_rsp[3] == 0x24) {
    return by_rsp[4] < 0x80 ? frame.rsp + by_rsp[4] : 0; /* no offset of a stack frame's is negative */
  }
  if (frame.rbp != 0 && by_rbp[0] == 0x48 && by_rbp[1] == 0x8b && by_rbp[2] == (0x45 | register_bits)) {
    return frame.rbp + (uint64_t)(int8_t)by_rbp[3];
  }
  return 0;
}

STACKD_HANDLER static bool is_move(const uint8_t* code) {
  return (code[0] & 0xf8) == 0x48 && (code[1] == 0x89 || code[1] == 0x8b) && code[2] >= 0xc0;
}

/* Where the caller of __syscall_cancel_arch took its second argument from; 0 if that is not to be seen. */
STACKD_HANDLER static uint64_t number_of_caller(int32_t pid, bool is_own, struct frame frame) {
  uint64_t return_address;
  uint8_t code[CALLER_BYTES];
  if (!read_near(pid, is_own, frame.rsp, &return_address, sizeof(return_address))) return 0;
  /* If it is one. */
  if (stackd_read_memory(pid, return_address - sizeof(code), code, sizeof(code)) != sizeof(code)) return 0;
  const uint8_t* end = code + sizeof(code) - CALLED_BYTES;
  if (end[0] != 0xe8) return 0;
  struct frame of_caller = {frame.rsp + sizeof(return_address), frame.rbp};
  for (int moves = 0; moves <= MAX_MOVES; moves++, end -= MOVE_BYTES) {
    uint64_t place = loaded_from(end, TO_RSI, of_caller);
    if (place != 0) return place;
    if (moves < MAX_MOVES && !is_move(end - MOVE_BYTES)) return 0;
  }
  return 0;
}

STACKD_HANDLER static bool is_save(const uint8_t* code) {
  return code[0] == 0x4c && code[1] == 0x89 && code[2] == 0x5c && code[3] == 0x24 && code[4] == 0x08;
}

int stackd_syscall_number_on_stack(int32_t pid, bool is_own, uint64_t rip, uint64_t rsp, uint64_t rbp) {
  _Static_assert(SAVE_BYTES == LOAD_BY_RSP_BYTES, "either may be before the call");
  uint8_t code[SAVE_BYTES + CALL_BYTES];
  struct frame frame = {rsp, rbp};
  if (!read_near(pid, is_own, rip - sizeof(code), code, sizeof(code))) return -1;
  const uint8_t* call = code + SAVE_BYTES;
  if (!is_call(call)) return -1;
  uint64_t place = is_save(code) ? number_of_caller(pid, is_own, frame) : loaded_from(call, TO_RAX, frame);
  uint64_t number;
  bool is_near = place - rsp < NEAR_BYTES;
  if (place == 0 || !read_near(pid, is_own && is_near, place, &number, sizeof(number))) return -1;
  return number < STACKD_SYSCALL_NUMBERS ? (int)number : -1;
}

/* Whether the next instruction is `syscall`. */
STACKD_HANDLER static bool is_before_call(uint64_t rip) {
  return can_read(rip, rip + CALL_BYTES) && is_call((const uint8_t*)rip);
}

int stackd_ended_call_number(const void* ucontext) {
  const greg_t* registers = ((const ucontext_t*)ucontext)->uc_mcontext.gregs;
  uint64_t rip = (uint64_t)registers[REG_RIP];
  if ((uint64_t)registers[REG_RAX] != (uint64_t)-EINTR) return -1;
  int number = number_before(rip);
  return number >= 0 ? number
                     : stackd_syscall_number_on_stack(stackd_getpid(), true, rip, (uint64_t)registers[REG_RSP],
                                                      (uint64_t)registers[REG_RBP]);
}

void stackd_interrupted_call(const void* ucontext, struct stackd_syscall* call) {
  const greg_t* registers = ((const ucontext_t*)ucontext)->uc_mcontext.gregs;
  uint64_t rax = (uint64_t)registers[REG_RAX];
  bool is_made_again = rax < STACKD_SYSCALL_NUMBERS && is_before_call((uint64_t)registers[REG_RIP]);
  int number = is_made_again ? (int)rax : stackd_ended_call_number(ucontext);
  *call = (struct stackd_syscall){0};
  if (number < 0) return;
  const uint64_t arguments[STACKD_SYSCALL_ARGUMENTS] = {(uint64_t)registers[REG_RDI], (uint64_t)registers[REG_RSI],
                                                        (uint64_t)registers[REG_RDX], (uint64_t)registers[REG_R10],
                                                        (uint64_t)registers[REG_R8],  (uint64_t)registers[REG_R9]};
  stackd_syscall_keep((uint32_t)number, arguments, call);
}
