/* The pointer filter: of up to 64 words, which may leave the process.
 *
 * Kept are words that point into code or into the stack being copied. An unwinder uses no others, so it loses nothing, and
 * no data leaves the process. SIGNAL-SAFE, touches nothing but its arguments.
 */
#ifndef STACKD_POINTER_FILTER_H_
#define STACKD_POINTER_FILTER_H_

#include <stdint.h>

#include "agent/maps/code_ranges.h"

#define STACKD_FILTER_WORDS 64
/* The AVX2 variant stores four words at a time, also past the last one kept. */
#define STACKD_FILTER_OUT_WORDS (STACKD_FILTER_WORDS + 4)

/* Code, the stack that is copied, and the thread's own stack if that is another. */
#define STACKD_FILTER_INTERVALS (STACKD_CODE_INTERVALS + 2)

struct stackd_filter {
  /* Intervals as start and length: x is inside if x - start < length, unsigned. */
  uint64_t start[STACKD_FILTER_INTERVALS];
  uint64_t length[STACKD_FILTER_INTERVALS];
};

void stackd_filter_init(struct stackd_filter* filter, const struct stackd_code_ranges* ranges, struct stackd_interval stack,
                        struct stackd_interval outer) STACKD_HANDLER;

/* Whether one word is kept: for registers. */
int stackd_filter_keeps(const struct stackd_filter* filter, uint64_t word) STACKD_HANDLER;

/* Copies the kept ones of `count` (1 to 64) words to `out`, in order; returns a mask with bit i set if words[i] was kept.
 */
typedef uint64_t stackd_filter_fn(const struct stackd_filter* filter, const uint64_t* words, unsigned count,
                                  uint64_t out[STACKD_FILTER_OUT_WORDS]);

stackd_filter_fn stackd_filter_scalar STACKD_HANDLER;
stackd_filter_fn stackd_filter_avx2 STACKD_HANDLER;

/* Returns the faster one that this CPU has. The first call asks the CPU, which takes some 25 us in a virtual machine: too
 * much for each start and each fork. */
stackd_filter_fn* stackd_filter_choose(void) STACKD_HANDLER;

#endif /* STACKD_POINTER_FILTER_H_ */
