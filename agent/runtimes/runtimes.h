/* The runtimes of other languages that are known, as the rest of the agent sees them. What they know of a thread's stack
 * becomes a part of its THREAD record (ring_abi.h). Generic code knows no runtime by name. */
#ifndef STACKD_RUNTIMES_H_
#define STACKD_RUNTIMES_H_

#include <stdbool.h>
#include <stdint.h>

#include "agent/runtimes/walker.h"

/* On a thread of the program's, before the rest: learns what only the C library can tell. NOT SIGNAL-SAFE. */
void stackd_managed_prepare(void);

/* Looks for runtimes that are new in this process, and reads of each what its walker must know. `maps_fd` is
 * /proc/self/maps. Called by the helper when it starts, and before dumps, where new code was mapped since. No lock of the
 * loader's is taken, so that a process that hangs in it can be dumped. NOT SIGNAL-SAFE. */
void stackd_managed_find_runtimes(int maps_fd);

/* Whether a thread that sleeps in `call` takes an interruption for something else, and must not be sent a signal. If so,
 * this is the frame pointer of a function on its stack whose end the helper can tell, else 0. NOT SIGNAL-SAFE. */
uint64_t stackd_runtimes_must_not_interrupt(const struct stackd_syscall* call, uint64_t rsp);
/* Whether any thread of this process could be such a one. NOT SIGNAL-SAFE. */
bool stackd_runtimes_have_uninterruptible(void);

/* Whether the daemon reads memory of a runtime after the records of a dump are written: names are there, and nowhere else.
 * Any thread. */
bool stackd_runtimes_are_read_after_dump(void);

/* Whether a runtime was found of which the daemon must read the heap. Names of Java's methods, goroutines, tasks of
 * asyncio, the holder of Python's GIL and lines of scripts lie there alone. Helper thread, or the thread that stands in for
 * it. */
bool stackd_runtimes_need_memory(void);

/* How many of a crash record's slots the stack leaves for what runtimes know. A stack that has overflowed would fill every
 * slot. 0 where there is no runtime. SIGNAL-SAFE. */
uint32_t stackd_managed_crash_slots(uint32_t slots) STACKD_HANDLER;

/* Appends to `ring`, whose record is begun, what all runtimes that were found know of the thread. `*words` is set to how
 * much that is, at most STACKD_MAX_MANAGED_WORDS. False if slots ran out: what was appended before stays. SIGNAL-SAFE. */
bool stackd_managed_write(struct stackd_ring_writer* ring, struct stackd_managed_thread* thread,
                          uint32_t* words) STACKD_HANDLER;

#endif /* STACKD_RUNTIMES_H_ */
