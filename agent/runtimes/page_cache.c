#include "agent/runtimes/page_cache.h"

#include <stddef.h>

#include "agent/sys/large.h"
#include "agent/sys/syscalls.h"

#define MAX_SETS 16u
/* With 16 a walk over Python's frames makes a tenth fewer calls. */
#define PAGES 8u
/* No page starts there. */
#define NONE 1u

struct stackd_page_copies {
  uint32_t taken;
  uint32_t latest; /* that was asked for */
  uint32_t uses;
  uint32_t last_use[PAGES];
  uint64_t starts[PAGES];
  unsigned char bytes[PAGES][STACKD_PAGE_BYTES];
};

static STACKD_LARGE struct stackd_page_copies sets[MAX_SETS];
static uint32_t set_count;

struct stackd_page_copies* stackd_page_copies_take(void) {
  uint32_t count = __atomic_load_n(&set_count, __ATOMIC_ACQUIRE);
  for (uint32_t i = 0; i < count; i++) {
    struct stackd_page_copies* copies = &sets[i];
    if (__atomic_load_n(&copies->taken, __ATOMIC_RELAXED) != 0) continue;
    if (__atomic_exchange_n(&copies->taken, 1, __ATOMIC_ACQUIRE) != 0) continue;
    copies->latest = 0;
    copies->uses = 0;
    for (uint32_t j = 0; j < PAGES; j++) {
      copies->last_use[j] = 0;
      copies->starts[j] = NONE;
    }
    return copies;
  }
  return NULL;
}

void stackd_page_copies_give_back(struct stackd_page_copies* copies) {
  __atomic_store_n(&copies->taken, 0, __ATOMIC_RELEASE);
}

const unsigned char* stackd_page_copy_of(struct stackd_page_copies* copies, uint64_t start) {
  uint32_t index = copies->latest;
  for (uint32_t i = 0; copies->starts[index] != start; i++) {
    if (i == PAGES) return NULL;
    index = i;
  }
  if (index != copies->latest) {
    copies->latest = index;
    copies->last_use[index] = ++copies->uses;
  }
  return copies->bytes[index];
}

const unsigned char* stackd_page_copy(struct stackd_page_copies* copies, int32_t pid, uint64_t start) {
  uint32_t index = 0;
  for (uint32_t i = 1; i < PAGES; i++) {
    if (copies->last_use[i] < copies->last_use[index]) index = i;
  }
  copies->starts[index] = NONE;
  if (stackd_read_memory(pid, start, copies->bytes[index], STACKD_PAGE_BYTES) != (long)STACKD_PAGE_BYTES) return NULL;
  copies->starts[index] = start;
  copies->latest = index;
  copies->last_use[index] = ++copies->uses;
  return copies->bytes[index];
}

/* The number that this thread may run on; 0: not known. */
static long count_processors(void) {
  uint64_t mask[64];
  long bytes = stackd_syscall6(SYS_sched_getaffinity, 0, sizeof(mask), (long)mask, 0, 0, 0);
  long count = 0;
  for (long i = 0; i < bytes / 8; i++) {
    for (; mask[i] != 0; mask[i] &= mask[i] - 1) count++;
  }
  return count;
}

void stackd_page_copies_prepare(void) {
  if (set_count != 0) return;
  long processors = count_processors();
  /* One more, for a handler that lost its processor. */
  uint32_t count = processors > 0 && processors < (long)MAX_SETS ? (uint32_t)processors + 1 : MAX_SETS;
  for (uint32_t i = 0; i < count; i++) {
    for (uint32_t j = 0; j < PAGES; j++) *(volatile unsigned char*)sets[i].bytes[j] = 0;
  }
  __atomic_store_n(&set_count, count, __ATOMIC_RELEASE);
}

void stackd_page_copies_reset_after_fork(void) {
  for (uint32_t i = 0; i < set_count; i++) __atomic_store_n(&sets[i].taken, 0, __ATOMIC_RELEASE);
}
