/* Copies of whole pages that a walk reads from (walker.h). The kernel takes no longer to copy a page than to copy a word of
 * it, and what belongs together often lies together.
 *
 * They need more room than a handler has on its stack. There are as many sets as handlers commonly run at once; a handler
 * that finds none free does without. */
#ifndef STACKD_PAGE_CACHE_H_
#define STACKD_PAGE_CACHE_H_

#include <stdint.h>

#include "agent/sys/syscalls.h"

#define STACKD_PAGE_BYTES 4096u

struct stackd_page_copies;

/* An empty set, or NULL. SIGNAL-SAFE, never waits. */
struct stackd_page_copies* stackd_page_copies_take(void) STACKD_HANDLER;
void stackd_page_copies_give_back(struct stackd_page_copies* copies) STACKD_HANDLER;

/* The page that starts at `start`, as it was when it was copied; until the next one is. NULL if it was not, or not of late.
 * SIGNAL-SAFE. */
const unsigned char* stackd_page_copy_of(struct stackd_page_copies* copies, uint64_t start) STACKD_HANDLER;

/* Copies that page, in place of the one that was not asked for the longest. NULL if it cannot be read. SIGNAL-SAFE. */
const unsigned char* stackd_page_copy(struct stackd_page_copies* copies, int32_t pid, uint64_t start) STACKD_HANDLER;

/* Has the kernel provide the memory: when a handler needs it there may be none left. NOT SIGNAL-SAFE. */
void stackd_page_copies_prepare(void);

/* The handlers of the parent's other threads will not give theirs back here. */
void stackd_page_copies_reset_after_fork(void);

#endif /* STACKD_PAGE_CACHE_H_ */
