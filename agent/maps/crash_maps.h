/* /proc/self/maps, read by a crash handler itself: what the helper read earlier may be old, or the helper never ran. */
#ifndef STACKD_CRASH_MAPS_H_
#define STACKD_CRASH_MAPS_H_

#include <stdbool.h>
#include <stdint.h>

#include "agent/maps/code_ranges.h"

#define STACKD_MEMORY_MAP_WRITABLE 2

struct stackd_memory_map {
  /* The stack that rsp is in, or in whose guard it is; {0, 0} if there is none. It is the mapping, without stacks of other
   * threads that the kernel has joined with it, as far as that can be told. */
  struct stackd_interval stack;
  /* stackd_memory_map_ranges() */
  char ranges[sizeof(struct stackd_code_ranges) + STACKD_MEMORY_MAP_WRITABLE * sizeof(struct stackd_interval)]
      __attribute__((aligned(8)));
};

/* Code, the main stack, and of the writable mappings those of rsp and of the thread descriptor. */
static inline struct stackd_code_ranges* stackd_memory_map_ranges(struct stackd_memory_map* map) {
  return (struct stackd_code_ranges*)map->ranges;
}

/* False if the file could not be read to its end. SIGNAL-SAFE. */
bool stackd_memory_map_read(struct stackd_memory_map* map, int maps_fd, uint64_t rsp, uint64_t thread_self) STACKD_HANDLER;

/* Where the guard pages end that `address` is in; `address` itself if it is in none, or if none ends below `end`. Since
 * glibc 2.42, on Linux 6.13 and later, a guard page is no mapping of its own (MADV_GUARD_INSTALL). The kernel joins stacks
 * that lie side by side to one mapping: only a look at each page tells. SIGNAL-SAFE. */
uint64_t stackd_guard_end(uint64_t address, uint64_t end) STACKD_HANDLER;

#endif /* STACKD_CRASH_MAPS_H_ */
