/* What a handler finds when it runs: registers and stacks of the interrupted thread. And the count of handlers that run. */
#ifndef STACKD_CONTEXT_H_
#define STACKD_CONTEXT_H_

#include <stdint.h>

#include "agent/maps/code_ranges.h"
#include "agent/sys/syscalls.h"
#include "stackd/ring_abi.h"

/* Around whatever uses stackd_code_ranges_current(): the helper writes no newer ranges meanwhile. HANDLER ONLY. */
void stackd_handler_enter(void) STACKD_HANDLER;
void stackd_handler_leave(void) STACKD_HANDLER;

/* `ucontext` is the third argument of a signal handler. stackd_has_room(): whether `bytes` are left on this stack. HANDLER
 * ONLY. */
void stackd_copy_registers(const void* ucontext, uint64_t regs[STACKD_REGISTERS]) STACKD_HANDLER;
struct stackd_interval stackd_alternate_stack(const void* ucontext) STACKD_HANDLER;
int stackd_has_room(const void* ucontext, uint64_t bytes) STACKD_HANDLER;

/* Waits until no handler runs that may have seen a former ring, at most `timeout_ns`. False: one still does, so the memory
 * must stay mapped. */
int stackd_handler_quiesce(uint64_t timeout_ns);

/* In the child of a fork: no other thread could be in a handler. */
void stackd_handlers_reset_after_fork(void);

#endif /* STACKD_CONTEXT_H_ */
