#include "agent/signals/sigterm.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#define TRAMPOLINES 16 /* as many as below */
#define TRAMPOLINE_BYTES 32

uint64_t stackd_sigterm_count;

/* The program's handler behind each trampoline; set once. */
stackd_signal_handler* stackd_sigterm_handlers[TRAMPOLINES];

extern const char stackd_sigterm_trampolines[];

/* Not in C: what a compiler makes of a jump to another function may use registers, or a stack. Not locked: it is enough
 * that the count has changed. */
__asm__(
    ".pushsection .text.stackd_handler,\"ax\",@progbits\n"
    ".balign 32\n"
    ".globl stackd_sigterm_trampolines\n"
    ".hidden stackd_sigterm_trampolines\n"
    ".type stackd_sigterm_trampolines, @function\n"
    "stackd_sigterm_trampolines:\n"
    ".set .Lstackd_trampoline, 0\n"
    ".rept 16\n"
    ".balign 32\n"
    "endbr64\n"
    "incq stackd_sigterm_count(%rip)\n"
    "jmp *stackd_sigterm_handlers+8*.Lstackd_trampoline(%rip)\n"
    ".set .Lstackd_trampoline, .Lstackd_trampoline+1\n"
    ".endr\n"
    ".balign 32\n"
    ".size stackd_sigterm_trampolines, .-stackd_sigterm_trampolines\n"
    ".popsection\n");

STACKD_HANDLER static stackd_signal_handler* trampoline(size_t index) {
  return (stackd_signal_handler*)(uintptr_t)(stackd_sigterm_trampolines + index * TRAMPOLINE_BYTES);
}

STACKD_HANDLER static bool is_trampoline(stackd_signal_handler* handler) {
  return (uintptr_t)handler - (uintptr_t)stackd_sigterm_trampolines < TRAMPOLINES * TRAMPOLINE_BYTES;
}

STACKD_HANDLER static bool is_function(stackd_signal_handler* handler) {
  return handler != SIG_DFL && handler != SIG_IGN && handler != SIG_HOLD && handler != SIG_ERR;
}

stackd_signal_handler* stackd_sigterm_trampoline_to(stackd_signal_handler* handler) {
  if (!is_function(handler) || is_trampoline(handler)) return handler;
  for (size_t i = 0; i < TRAMPOLINES; i++) {
    stackd_signal_handler* taken = NULL;
    if (__atomic_compare_exchange_n(&stackd_sigterm_handlers[i], &taken, handler, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE) ||
        taken == handler) {
      return trampoline(i);
    }
  }
  return handler;
}

stackd_signal_handler* stackd_sigterm_behind(stackd_signal_handler* handler) {
  if (!is_trampoline(handler)) return handler;
  return __atomic_load_n(
      &stackd_sigterm_handlers[((uintptr_t)handler - (uintptr_t)stackd_sigterm_trampolines) / TRAMPOLINE_BYTES],
      __ATOMIC_ACQUIRE);
}

void stackd_sigterm_add(void) { __atomic_fetch_add(&stackd_sigterm_count, 1, __ATOMIC_RELAXED); }
