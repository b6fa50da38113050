#include "agent/maps/crash_maps.h"

#include "agent/maps/maps_line.h"

#define CHUNK_BYTES 1024
/* A function with a large frame steps over a guard page. */
#define GUARD_BYTES (1u << 20)
#define PAGE_BYTES 4096ull
/* What glibc 2.36 puts above the thread pointer, at the top of a stack. */
#define DESCRIPTOR_BYTES 2304u

struct scan {
  struct stackd_interval* stack;
  struct stackd_code_ranges* ranges;
  uint64_t rsp;
  uint64_t thread_self;
  struct stackd_interval code[STACKD_CODE_INTERVALS + 1];
  uint32_t code_count;
  bool past_rsp; /* a readable mapping above rsp was seen */
};

STACKD_HANDLER static void add_code(struct scan* scan, struct stackd_interval range) {
  scan->code[scan->code_count++] = range;
  if (scan->code_count <= STACKD_CODE_INTERVALS) return;
  /* One too many: join those with the smallest gap between them. */
  uint32_t nearest = 0;
  for (uint32_t i = 1; i + 1 < scan->code_count; i++) {
    uint64_t gap = scan->code[i + 1].start - scan->code[i].end;
    if (gap < scan->code[nearest + 1].start - scan->code[nearest].end) nearest = i;
  }
  scan->code[nearest].end = scan->code[nearest + 1].end;
  for (uint32_t i = nearest + 1; i + 1 < scan->code_count; i++) scan->code[i] = scan->code[i + 1];
  scan->code_count--;
}

STACKD_HANDLER static void add_writable(struct scan* scan, const struct stackd_interval* range) {
  struct stackd_code_ranges* ranges = scan->ranges;
  uint32_t count = ranges->writable_count;
  if (count > 0 && ranges->writable[count - 1].end == range->start) {
    /* A stack that madvise() or the like has split. */
    if (scan->stack->end == range->start) scan->stack->end = range->end;
    ranges->writable[count - 1].end = range->end;
    return;
  }
  bool in_guard = !scan->past_rsp && scan->rsp < range->start && range->start - scan->rsp <= GUARD_BYTES;
  bool of_rsp = in_guard || (scan->rsp >= range->start && scan->rsp < range->end);
  if (of_rsp) *scan->stack = *range;
  bool of_self = scan->thread_self >= range->start && scan->thread_self < range->end;
  if ((of_rsp || of_self) && count < STACKD_MEMORY_MAP_WRITABLE) {
    ranges->writable[count] = *range;
    ranges->writable_count = count + 1;
  }
}

STACKD_HANDLER static void take_line(struct scan* scan, const struct stackd_maps_line* line) {
  if (line->executable) add_code(scan, line->range);
  if (line->readable && line->writable) add_writable(scan, &line->range);
  if (line->readable && line->range.end > scan->rsp) scan->past_rsp = true;
  if (line->is_main_stack) scan->ranges->main_stack = line->range;
}

uint64_t stackd_guard_end(uint64_t address, uint64_t end) {
  uint64_t page = address & ~(PAGE_BYTES - 1), limit = end - page > GUARD_BYTES ? page + GUARD_BYTES : end;
  while (page < limit && !stackd_is_readable(page)) page += PAGE_BYTES;
  return page > address && page < limit ? page : address;
}

STACKD_HANDLER static void cut_neighbours(struct stackd_interval* stack, uint64_t rsp, uint64_t thread_self) {
  if (rsp < stack->start || rsp >= stack->end) return;
  uint64_t page = rsp & ~(PAGE_BYTES - 1), guard_end = stackd_guard_end(page, stack->end);
  bool is_above_guard = page > stack->start && !stackd_is_readable(page - PAGE_BYTES) && stackd_is_readable(page);
  if (guard_end != page || is_above_guard) stack->start = guard_end;
  if (thread_self < rsp || thread_self >= stack->end) return;
  uint64_t top = (thread_self + DESCRIPTOR_BYTES + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
  if (top < stack->end) stack->end = top;
}

bool stackd_memory_map_read(struct stackd_memory_map* map, int maps_fd, uint64_t rsp, uint64_t thread_self) {
  struct stackd_interval none = {0, 0};
  map->stack = none;
  struct stackd_code_ranges* ranges = stackd_memory_map_ranges(map);
  ranges->main_stack = none;
  ranges->writable_count = 0;
  ranges->writable_capacity = STACKD_MEMORY_MAP_WRITABLE;
  struct scan scan;
  scan.stack = &map->stack;
  scan.ranges = ranges;
  scan.rsp = rsp;
  scan.thread_self = thread_self;
  scan.code_count = 0;
  scan.past_rsp = false;
  struct stackd_maps_line line;
  stackd_maps_line_clear(&line);
  char text[CHUNK_BYTES];
  for (long offset = 0;;) {
    long got = stackd_syscall6(SYS_pread64, maps_fd, (long)text, sizeof(text), offset, 0, 0);
    if (got < 0) return false;
    if (got == 0) break;
    offset += got;
    for (long i = 0; i < got; i++) {
      if (!stackd_maps_line_take(&line, text[i])) continue;
      take_line(&scan, &line);
      stackd_maps_line_clear(&line);
    }
  }
  cut_neighbours(&map->stack, rsp, thread_self);
  for (uint32_t i = 0; i < STACKD_CODE_INTERVALS; i++) ranges->code[i] = i < scan.code_count ? scan.code[i] : none;
  return true;
}
