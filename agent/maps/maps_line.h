/* One line of /proc/self/maps, character by character, so that a handler needs no buffer for it:
 * "start-end perms offset dev inode path". */
#ifndef STACKD_MAPS_LINE_H_
#define STACKD_MAPS_LINE_H_

#include <stdbool.h>
#include <stdint.h>

#include "agent/maps/code_ranges.h"

struct stackd_maps_line {
  struct stackd_interval range;
  bool readable;
  bool writable;
  bool executable;
  bool is_main_stack;
  uint64_t file_offset;
  uint64_t inode;
  /* Private. */
  uint32_t field;
  uint32_t position; /* in the field */
};

/* Before the first character. SIGNAL-SAFE, as is the other. */
void stackd_maps_line_clear(struct stackd_maps_line* line) STACKD_HANDLER;

/* True if this was the end of the line: then it is read, and to be cleared before the next character. */
bool stackd_maps_line_take(struct stackd_maps_line* line, char c) STACKD_HANDLER;

#endif /* STACKD_MAPS_LINE_H_ */
