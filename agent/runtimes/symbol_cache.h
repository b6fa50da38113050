/* Copies of symbols as they were written to the ring a moment ago. Threads that wait often wait in the same functions, and
 * the record of each has all names of its own.
 *
 * Each is one handler's alone while it is in use; a handler that finds it taken does without. */
#ifndef STACKD_SYMBOL_CACHE_H_
#define STACKD_SYMBOL_CACHE_H_

#include <stdbool.h>
#include <stdint.h>

#include "agent/sys/syscalls.h"

#define STACKD_SYMBOL_SOURCE_WORDS 31u
#define STACKD_SYMBOL_WORDS 93u

struct stackd_symbol_copy {
  uint32_t taken;
  uint32_t word_count; /* of a whole symbol; else 0 */
  uint64_t key;
  uint64_t time_ns;                            /* by CLOCK_MONOTONIC */
  uint64_t source_words;                       /* how many of these: */
  uint64_t source[STACKD_SYMBOL_SOURCE_WORDS]; /* what the runtime keeps of the function, as it was then */
  uint64_t words[STACKD_SYMBOL_WORDS];         /* the entry of the ring (ring_abi.h) */
};

/* The copy of `key`, or room for one; NULL if others have all that may be. SIGNAL-SAFE, never waits. */
struct stackd_symbol_copy* stackd_symbol_copy_take(uint64_t key, uint64_t now_ns) STACKD_HANDLER;
void stackd_symbol_copy_give_back(struct stackd_symbol_copy* copy) STACKD_HANDLER;

/* Whether what was copied is still true: it is young, and the runtime's `source` has not changed by a word since. An
 * address is used again where functions come and go. SIGNAL-SAFE. */
bool stackd_symbol_copy_is_of(const struct stackd_symbol_copy* copy, uint64_t key, const uint64_t* source,
                              uint32_t source_words, uint64_t now_ns) STACKD_HANDLER;

/* Makes it that of another symbol, whose words are to come. SIGNAL-SAFE. */
void stackd_symbol_copy_begin(struct stackd_symbol_copy* copy, uint64_t key, const uint64_t* source, uint32_t source_words,
                              uint64_t now_ns) STACKD_HANDLER;

/* As with copies of pages (page_cache.h). NOT SIGNAL-SAFE. */
void stackd_symbol_copies_prepare(void);
void stackd_symbol_copies_reset_after_fork(void);

#endif /* STACKD_SYMBOL_CACHE_H_ */
