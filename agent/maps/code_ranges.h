/* Which addresses are code, and which mapping a stack lies in. A handler must know that about the address space; the helper
 * thread reads it beforehand.
 */
#ifndef STACKD_CODE_RANGES_H_
#define STACKD_CODE_RANGES_H_

#include <stdint.h>

#include "agent/sys/syscalls.h"

/* Executable mappings are merged into this many intervals, smallest gaps first. A library that is loaded later between two
 * others is then covered too, and the filter compares with a constant number of ranges. Merging keeps 2 to 4 % more words
 * than exact intervals do. */
#define STACKD_CODE_INTERVALS 4

struct stackd_interval {
  uint64_t start;
  uint64_t end;
};

struct stackd_code_ranges {
  struct stackd_interval code[STACKD_CODE_INTERVALS]; /* unused ones are empty */
  struct stackd_interval main_stack;                  /* "[stack]" */
  uint32_t writable_count;
  uint32_t writable_capacity;
  struct stackd_interval writable[]; /* sorted */
};

/* Reads /proc/self/maps from `maps_fd` and publishes what it says. 1 if the executable mappings changed, 0 if not, or a
 * negative errno (then the former ranges stay). NOT SIGNAL-SAFE (maps memory); one thread at a time. */
int stackd_code_ranges_refresh(int maps_fd);

/* In the child of a fork: the parent's helper may have been in the middle of a refresh. What it had is left behind. */
void stackd_code_ranges_reset_after_fork(void);

/* The ranges published last, or NULL before the first refresh. They stay readable for ever and unchanged until the refresh
 * after the next. HANDLER ONLY. */
const struct stackd_code_ranges* stackd_code_ranges_current(void) STACKD_HANDLER;

/* The writable mapping that holds `address`; {0, 0} if none is known. SIGNAL-SAFE. */
struct stackd_interval stackd_writable_mapping(const struct stackd_code_ranges* ranges, uint64_t address) STACKD_HANDLER;

#endif /* STACKD_CODE_RANGES_H_ */
