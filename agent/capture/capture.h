/* One thread's registers and stack become a record in the ring. */
#ifndef STACKD_CAPTURE_H_
#define STACKD_CAPTURE_H_

#include <stdbool.h>
#include <stdint.h>

#include "agent/capture/pointer_filter.h"
#include "agent/ring/ring_writer.h"

/* How far below its start, as read earlier, the main stack may reach by now. */
#define STACKD_MAIN_STACK_GROWTH_BYTES (8ull << 20)

struct stackd_capture {
  const struct stackd_ring* ring;
  const struct stackd_code_ranges* ranges; /* may be NULL: then no word passes the filter but those into the stack */
  stackd_filter_fn* filter;
  uint32_t seq;
  uint32_t tid;
  int32_t pid;
  uint32_t flags; /* stackd_thread_flags known beforehand */
  uint32_t max_stack_bytes;
  uint64_t thread_self; /* fs base; 0 if unknown */
  uint64_t begin_ns;
  uint64_t cpu_ns;
  char name[16];
  uint64_t regs[STACKD_REGISTERS];
  struct stackd_syscall call; /* that the thread is in; all zero if it is in none, or in an unknown one */
  /* For a thread that crashed: the record goes to the crash part, into at most so many slots. A stack that is longer than
   * these hold keeps both ends. 0: a live dump. */
  uint32_t crash_slots;
  /* Nothing is read in place: a fault, however unlikely, would not come back here. */
  bool by_kernel_only;
  /* The stack that rsp is in or just below, if the caller has looked; else {0, 0}. */
  struct stackd_interval stack;
  /* The thread's alternate stack for signals; {0, 0} if it has none or that is not known. */
  struct stackd_interval alternate;
};

/* What is kept of the outermost end of a stack whose middle is left out. */
#define STACKD_CRASH_OUTER_BYTES (16u << 10)

/* Stack that the dump handler needs to write a record, all calls included: tests/safety counts 3,800 as it is built here.
 * The rest is for other compilers. */
#define STACKD_CAPTURE_STACK_BYTES 4096

/* Copies the stack of the thread that `capture` describes, from rsp - 128 to its top. If rsp is on an alternate stack or a
 * fiber's, copies also what that leads to of the thread's own. A bad rsp gives a record without a stack.
 *
 * SIGNAL-SAFE. 0; -ENOSPC if the ring had no room for the whole record: then nothing is written, and the drop is counted.
 */
int stackd_capture_write(const struct stackd_capture* capture) STACKD_HANDLER;

/* Like stackd_capture_write(), but the caller commits the record of `writer`, or abandons it. SIGNAL-SAFE. */
int stackd_capture_begin(const struct stackd_capture* capture, struct stackd_ring_writer* writer) STACKD_HANDLER;

/* Captures a thread that crashed into a record that is not committed: it becomes part of a CRASH record. `*next` is set to
 * its first slot as soon as the registers are in it, before the stack is looked at. It stays as it is if there is no slot.
 * Slots that run out cut the stack.
 *
 * SIGNAL-SAFE. */
void stackd_capture_write_crash(const struct stackd_capture* capture, uint32_t* next) STACKD_HANDLER;

/* Like stackd_capture_write_crash(), but without a stack, for a thread that has hardly any left. */
void stackd_capture_write_registers(const struct stackd_capture* capture, uint32_t* next) STACKD_HANDLER;

#endif /* STACKD_CAPTURE_H_ */
