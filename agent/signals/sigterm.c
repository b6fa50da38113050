#include "agent/signals/sigterm.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#define DOORS 16 /* as many as below */
#define DOOR_BYTES 32

uint64_t stackd_sigterm_count;

/* The program's handler behind each door; set once. */
stackd_signal_handler* stackd_sigterm_handlers[DOORS];

extern const char stackd_sigterm_doors[];

/* Not in C: what a compiler makes of a jump to another function may use registers, or a stack. Not locked: it is enough
 * that the count has changed. */
__asm__(
    ".pushsection .text.stackd_handler,\"ax\",@progbits\n"
    ".balign 32\n"
    ".globl stackd_sigterm_doors\n"
    ".hidden stackd_sigterm_doors\n"
    ".type stackd_sigterm_doors, @function\n"
    "stackd_sigterm_doors:\n"
    ".set .Lstackd_door, 0\n"
    ".rept 16\n"
    ".balign 32\n"
    "endbr64\n"
    "incq stackd_sigterm_count(%rip)\n"
    "jmp *stackd_sigterm_handlers+8*.Lstackd_door(%rip)\n"
    ".set .Lstackd_door, .Lstackd_door+1\n"
    ".endr\n"
    ".balign 32\n"
    ".size stackd_sigterm_doors, .-stackd_sigterm_doors\n"
    ".popsection\n");

STACKD_HANDLER static stackd_signal_handler* door(size_t index) {
  return (stackd_signal_handler*)(uintptr_t)(stackd_sigterm_doors + index * DOOR_BYTES);
}

STACKD_HANDLER static bool is_door(stackd_signal_handler* handler) {
  return (uintptr_t)handler - (uintptr_t)stackd_sigterm_doors < DOORS * DOOR_BYTES;
}

STACKD_HANDLER static bool is_function(stackd_signal_handler* handler) {
  return handler != SIG_DFL && handler != SIG_IGN && handler != SIG_HOLD && handler != SIG_ERR;
}

stackd_signal_handler* stackd_sigterm_door_to(stackd_signal_handler* handler) {
  if (!is_function(handler) || is_door(handler)) return handler;
  for (size_t i = 0; i < DOORS; i++) {
    stackd_signal_handler* taken = NULL;
    if (__atomic_compare_exchange_n(&stackd_sigterm_handlers[i], &taken, handler, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE) ||
        taken == handler) {
      return door(i);
    }
  }
  return handler;
}

stackd_signal_handler* stackd_sigterm_behind(stackd_signal_handler* handler) {
  if (!is_door(handler)) return handler;
  return __atomic_load_n(&stackd_sigterm_handlers[((uintptr_t)handler - (uintptr_t)stackd_sigterm_doors) / DOOR_BYTES],
                         __ATOMIC_ACQUIRE);
}

void stackd_sigterm_add(void) { __atomic_fetch_add(&stackd_sigterm_count, 1, __ATOMIC_RELAXED); }
