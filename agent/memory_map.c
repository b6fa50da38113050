#include "agent/memory_map.h"

#define CHUNK_BYTES 1024
/* A function with a large frame steps over a guard page. */
#define GUARD_BYTES (1u << 20)
#define LABEL "[stack]"
#define LABEL_BYTES (sizeof(LABEL) - 1)

/* One line: "start-end perms offset dev inode path". */
struct line {
  struct stackd_interval range;
  char perms[4];
  uint32_t perms_count;
  bool in_end;
  bool in_perms;
  bool in_rest;
  uint32_t label_matched; /* of LABEL, at the end of what was read */
};

struct scan {
  struct stackd_memory_map* map;
  uint64_t rsp;
  uint64_t thread_self;
  struct stackd_interval code[STACKD_CODE_INTERVALS + 1];
  uint32_t code_count;
  bool past_rsp; /* a readable mapping above rsp was seen */
};

STACKD_HANDLER static void clear_line(struct line* line) {
  line->range.start = 0;
  line->range.end = 0;
  line->perms_count = 0;
  line->in_end = false;
  line->in_perms = false;
  line->in_rest = false;
  line->label_matched = 0;
}

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
  struct stackd_memory_map* map = scan->map;
  uint32_t count = map->ranges.writable_count;
  if (count > 0 && map->ranges.writable[count - 1].end == range->start) {
    /* A stack that madvise() or the like has split. */
    if (map->stack.end == range->start) map->stack.end = range->end;
    map->ranges.writable[count - 1].end = range->end;
    return;
  }
  bool in_guard = !scan->past_rsp && scan->rsp < range->start && range->start - scan->rsp <= GUARD_BYTES;
  bool of_rsp = in_guard || (scan->rsp >= range->start && scan->rsp < range->end);
  if (of_rsp) map->stack = *range;
  bool of_self = scan->thread_self >= range->start && scan->thread_self < range->end;
  if ((of_rsp || of_self) && count < STACKD_MEMORY_MAP_WRITABLE) {
    map->ranges.writable[count] = *range;
    map->ranges.writable_count = count + 1;
  }
}

STACKD_HANDLER static void take_line(struct scan* scan, const struct line* line) {
  if (line->perms_count < 4) return;
  if (line->perms[2] == 'x') add_code(scan, line->range);
  if (line->perms[0] == 'r' && line->perms[1] == 'w') add_writable(scan, &line->range);
  if (line->perms[0] == 'r' && line->range.end > scan->rsp) scan->past_rsp = true;
  if (line->label_matched == LABEL_BYTES) scan->map->ranges.main_stack = line->range;
}

STACKD_HANDLER static void take_character(struct line* line, char c) {
  if (line->in_rest) {
    static const char kLabel[] = LABEL;
    if (line->label_matched < LABEL_BYTES && c == kLabel[line->label_matched]) {
      line->label_matched++;
    } else {
      line->label_matched = c == kLabel[0];
    }
    return;
  }
  if (line->in_perms) {
    if (line->perms_count < 4) {
      line->perms[line->perms_count++] = c;
    } else {
      line->in_rest = true;
    }
    return;
  }
  if (c == '-') {
    line->in_end = true;
  } else if (c == ' ') {
    line->in_perms = true;
  } else {
    uint64_t* value = line->in_end ? &line->range.end : &line->range.start;
    *value = *value << 4 | (uint64_t)(c >= 'a' ? c - 'a' + 10 : c - '0');
  }
}

bool stackd_memory_map_read(struct stackd_memory_map* map, int maps_fd, uint64_t rsp, uint64_t thread_self) {
  struct stackd_interval none = {0, 0};
  map->stack = none;
  map->ranges.main_stack = none;
  map->ranges.writable_count = 0;
  map->ranges.writable_capacity = STACKD_MEMORY_MAP_WRITABLE;
  struct scan scan;
  scan.map = map;
  scan.rsp = rsp;
  scan.thread_self = thread_self;
  scan.code_count = 0;
  scan.past_rsp = false;
  struct line line;
  clear_line(&line);
  char text[CHUNK_BYTES];
  for (long offset = 0;;) {
    long got = stackd_syscall6(SYS_pread64, maps_fd, (long)text, sizeof(text), offset, 0, 0);
    if (got < 0) return false;
    if (got == 0) break;
    offset += got;
    for (long i = 0; i < got; i++) {
      if (text[i] != '\n') {
        take_character(&line, text[i]);
        continue;
      }
      take_line(&scan, &line);
      clear_line(&line);
    }
  }
  for (uint32_t i = 0; i < STACKD_CODE_INTERVALS; i++) map->ranges.code[i] = i < scan.code_count ? scan.code[i] : none;
  return true;
}
