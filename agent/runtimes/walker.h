/* What every walker of a runtime's frames needs: reads, with a budget, and a writer of what it finds (ring_abi.h).
 *
 * A walker reads the runtime's own memory. Nothing of the runtime is called, and no lock of its is taken. Whatever the
 * walker reads may be garbage, since the runtime was interrupted anywhere. So each read goes through stackd_managed_read
 * and each loop has a bound. */
#ifndef STACKD_WALKER_H_
#define STACKD_WALKER_H_

#include <stdbool.h>
#include <stdint.h>

#include "agent/ring/ring_writer.h"
#include "agent/runtimes/page_cache.h"
#include "agent/runtimes/symbol_cache.h"

/* The interrupted thread, as a walker sees it. */
struct stackd_managed_thread {
  int32_t pid;
  uint32_t tid;
  uint64_t thread_self; /* fs base; 0 if unknown */
  const uint64_t* regs; /* STACKD_REGISTERS */
  /* The thread's stack from rsp up, which can be read; empty where it is not known. */
  uint64_t stack_start;
  uint64_t stack_end;
  struct stackd_managed_budget* budget;
  struct stackd_page_copies* pages; /* NULL: none were free */
  /* When its capture began: by CLOCK_MONOTONIC, and by CLOCK_THREAD_CPUTIME_ID of the thread that looks. */
  uint64_t begin_ns;
  uint64_t begin_cpu_ns;
};

/* What a thread may spend on its walks, in looks and in time. A look may have to wait, for a program that maps and unmaps
 * all the time. From then on nothing can be read that is not there in a copy. */
struct stackd_managed_budget {
  uint32_t reads;
  bool spent;
  uint64_t cpu_deadline_ns;  /* by CLOCK_THREAD_CPUTIME_ID */
  uint64_t wall_deadline_ns; /* by CLOCK_MONOTONIC: later, as a thread may have to wait for a processor */
};

/* Where entries go. Entries that do not fit are left out, and `full` is set. */
struct stackd_managed_writer {
  struct stackd_ring_writer* ring;
  uint32_t words_left;
  bool full;
  bool ring_full;                     /* because no slot was free: what was written may end in the middle of an entry */
  uint32_t words;                     /* written */
  struct stackd_managed_runtime last; /* that was begun */
};

/* Copies `size_bytes` (65,536 at most) of this process's memory. False, and nothing is known of `out`, unless all of it
 * could be read. SIGNAL-SAFE. */
bool stackd_managed_read(const struct stackd_managed_thread* thread, uint64_t address, void* out,
                         uint32_t size_bytes) STACKD_HANDLER;

/* Like stackd_managed_read(), for memory that does not change while the thread stands still: its frames, what they run, and
 * the names of that. With `pages` it is as it was when the walk first met the page. SIGNAL-SAFE. */
bool stackd_managed_read_still(const struct stackd_managed_thread* thread, uint64_t address, void* out,
                               uint32_t size_bytes) STACKD_HANDLER;

/* Like stackd_managed_read_still(), but returns the memory where it lies in one copy, until the next read; else copies it
 * to `out`. NULL if it cannot be read. SIGNAL-SAFE. */
const void* stackd_managed_look_still(const struct stackd_managed_thread* thread, uint64_t address, void* out,
                                      uint32_t size_bytes) STACKD_HANDLER;

/* Called where a walker has found nothing of its runtime. Where nothing of this process can be read, as under a seccomp
 * filter, writes a walk of no instance (0) that ended UNREADABLE. SIGNAL-SAFE, as those below. */
void stackd_managed_say_if_blind(struct stackd_managed_writer* writer, const struct stackd_managed_thread* thread,
                                 uint32_t runtime, uint64_t version) STACKD_HANDLER;

/* Begins what one runtime says. */
void stackd_managed_begin(struct stackd_managed_writer* writer, uint32_t runtime, uint16_t flags, int32_t status,
                          uint64_t version, uint64_t instance) STACKD_HANDLER;

void stackd_managed_frame(struct stackd_managed_writer* writer, uint16_t flags, uint64_t anchor, uint64_t key,
                          int64_t position) STACKD_HANDLER;

/* A text or table in the runtime's memory, copied as it is written. Where it cannot be read it is zeros. */
struct stackd_managed_bytes {
  uint64_t address;
  uint32_t size_bytes;
};

struct stackd_managed_symbol_source {
  uint64_t key;
  uint32_t first_line;
  uint32_t table_format;
  struct stackd_managed_bytes function; /* cut at 1,024 bytes */
  struct stackd_managed_bytes file;     /* cut at 1,024 bytes, the beginning is left out */
  struct stackd_managed_bytes table;    /* left out if longer than 32 KiB */
};

/* `copy`, if not NULL, has been begun, and is left with what was written, if that is whole and there is room for it. */
void stackd_managed_symbol(struct stackd_managed_writer* writer, const struct stackd_managed_thread* thread,
                           const struct stackd_managed_symbol_source* symbol,
                           struct stackd_symbol_copy* copy) STACKD_HANDLER;

/* Writes what a copy has. */
void stackd_managed_symbol_again(struct stackd_managed_writer* writer,
                                 const struct stackd_symbol_copy* copy) STACKD_HANDLER;

/* Called by a finder that does not understand what it has found, which may be half loaded. stackd_managed_is_unsettled() is
 * true until runtimes are looked for again. Not for ever, as it may just be too new. NOT SIGNAL-SAFE. */
void stackd_managed_look_again(void);
bool stackd_managed_is_unsettled(void);

/* Before finders are called. NOT SIGNAL-SAFE. */
void stackd_managed_begin_look(void);

/* Called by whatever finds a runtime: from now on crash records keep room for it. `needs_memory`: the walk does not tell
 * all, and the daemon must read the heap. NOT SIGNAL-SAFE. */
void stackd_managed_has_found(bool needs_memory);
bool stackd_managed_needs_memory(void);

/* Whether there is any runtime. SIGNAL-SAFE. */
bool stackd_managed_any_found(void) STACKD_HANDLER;

/* After all walks: what they could not write or read, and could not say. SIGNAL-SAFE. */
void stackd_managed_say_what_is_missing(struct stackd_managed_writer* writer,
                                        const struct stackd_managed_budget* budget) STACKD_HANDLER;

#endif /* STACKD_WALKER_H_ */
