#include "agent/maps/code_ranges.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "agent/sys/fork_reset.h"
#include "agent/sys/kernel.h"

#define MAX_EXECUTABLE 1024

static struct stackd_code_ranges* _Atomic published;

/* Written in turn: a handler that still reads the older one keeps valid data for one more refresh. The helper refreshes at
 * most every STACKD_MAPS_AGE_NS, a handler runs some microseconds. */
static struct stackd_code_ranges* buffers[2];
static int next_buffer;

static uint64_t executable_hash;

const struct stackd_code_ranges* stackd_code_ranges_current(void) {
  return atomic_load_explicit(&published, memory_order_acquire);
}

struct stackd_interval stackd_writable_mapping(const struct stackd_code_ranges* ranges, uint64_t address) {
  uint32_t low = 0;
  uint32_t high = ranges->writable_count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (ranges->writable[middle].end <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low < ranges->writable_count && ranges->writable[low].start <= address) return ranges->writable[low];
  return (struct stackd_interval){0, 0};
}

void stackd_code_ranges_reset_after_fork(void) {
  STACKD_RESET(published, NULL);
  STACKD_RESET(buffers[0], NULL);
  STACKD_RESET(buffers[1], NULL);
  STACKD_RESET(next_buffer, 0);
  STACKD_RESET(executable_hash, 0);
}

static int reserve(int index, uint32_t capacity) {
  struct stackd_code_ranges* old = buffers[index];
  if (old != NULL && old->writable_capacity >= capacity) return 0;
  /* The old one stays mapped: a handler may still read it. Doubling bounds the waste to the size in use. */
  uint32_t grown = old != NULL ? old->writable_capacity : 128;
  while (grown < capacity) grown *= 2;
  size_t size_bytes = sizeof(struct stackd_code_ranges) + (size_t)grown * sizeof(struct stackd_interval);
  void* memory = stackd_map_private(size_bytes);
  if (memory == NULL) return -ENOMEM;
  if (old != NULL) memcpy(memory, old, sizeof(*old) + (size_t)old->writable_count * sizeof(struct stackd_interval));
  buffers[index] = memory;
  buffers[index]->writable_capacity = grown;
  return 0;
}

static void merge_to(struct stackd_interval* intervals, int count, struct stackd_interval* out) {
  while (count > STACKD_CODE_INTERVALS) {
    int nearest = 0;
    for (int i = 1; i + 1 < count; i++) {
      uint64_t gap = intervals[i + 1].start - intervals[i].end;
      if (gap < intervals[nearest + 1].start - intervals[nearest].end) nearest = i;
    }
    intervals[nearest].end = intervals[nearest + 1].end;
    memmove(&intervals[nearest + 1], &intervals[nearest + 2], (size_t)(count - nearest - 2) * sizeof(*intervals));
    count--;
  }
  for (int i = 0; i < STACKD_CODE_INTERVALS; i++) {
    out[i] = i < count ? intervals[i] : (struct stackd_interval){0, 0};
  }
}

/* One line of maps: "start-end perms offset dev inode path". */
struct line {
  struct stackd_interval range;
  bool writable;
  bool executable;
  bool is_main_stack;
};

static const char* parse_hex(const char* text, uint64_t* value) {
  *value = 0;
  for (;; text++) {
    unsigned digit;
    if (*text >= '0' && *text <= '9') {
      digit = (unsigned)(*text - '0');
    } else if (*text >= 'a' && *text <= 'f') {
      digit = (unsigned)(*text - 'a') + 10;
    } else {
      return text;
    }
    *value = *value << 4 | digit;
  }
}

static bool parse_line(const char* text, size_t length, struct line* out) {
  text = parse_hex(text, &out->range.start);
  if (*text != '-') return false;
  const char* perms = parse_hex(text + 1, &out->range.end);
  if (perms[0] != ' ' || out->range.end <= out->range.start) return false;
  out->writable = perms[1] == 'r' && perms[2] == 'w';
  out->executable = perms[3] == 'x';
  out->is_main_stack = length > 7 && memcmp(perms + strcspn(perms, "\n") - 7, "[stack]", 7) == 0;
  return true;
}

struct reading {
  struct stackd_interval executable[MAX_EXECUTABLE + 1];
  int executable_count;
  uint64_t hash;
  int index; /* into buffers */
};

static int take(struct reading* reading, const struct line* line) {
  struct stackd_code_ranges* ranges = buffers[reading->index];
  if (line->is_main_stack) ranges->main_stack = line->range;
  if (line->executable) {
    reading->hash = (reading->hash ^ line->range.start) * 0x9e3779b97f4a7c15u + line->range.end;
    struct stackd_interval* last = &reading->executable[reading->executable_count];
    if (reading->executable_count == MAX_EXECUTABLE) {
      last[-1].end = line->range.end; /* keeps too much rather than too little */
    } else {
      *last = line->range;
      reading->executable_count++;
    }
  }
  if (line->writable) {
    uint32_t count = ranges->writable_count;
    if (count > 0 && ranges->writable[count - 1].end == line->range.start) {
      ranges->writable[count - 1].end = line->range.end; /* [heap] and what follows it, or a split stack */
      return 0;
    }
    int error = reserve(reading->index, count + 1);
    if (error != 0) return error;
    ranges = buffers[reading->index];
    ranges->writable[count] = line->range;
    ranges->writable_count = count + 1;
  }
  return 0;
}

static int read_lines(int maps_fd, struct reading* reading) {
  char text[4096 + 1];
  size_t held = 0;
  bool skipping = false; /* the rest of a line longer than the buffer */
  off_t offset = 0;
  for (;;) {
    ssize_t got = stackd_pread(maps_fd, text + held, sizeof(text) - 1 - held, offset);
    if (got <= 0) return (int)got;
    offset += got;
    held += (size_t)got;
    text[held] = '\0';
    char* start = text;
    for (;;) {
      char* newline = memchr(start, '\n', held - (size_t)(start - text));
      if (newline == NULL) break;
      struct line line;
      if (!skipping && parse_line(start, (size_t)(newline - start), &line)) {
        int error = take(reading, &line);
        if (error != 0) return error;
      }
      skipping = false;
      start = newline + 1;
    }
    held -= (size_t)(start - text);
    memmove(text, start, held);
    if (held == sizeof(text) - 1) {
      /* Addresses and permissions stand at its start; the rest is a path. */
      struct line line;
      text[held] = '\0';
      if (!skipping && parse_line(text, held, &line)) {
        int error = take(reading, &line);
        if (error != 0) return error;
      }
      skipping = true;
      held = 0;
    }
  }
}

int stackd_code_ranges_refresh(int maps_fd) {
  struct reading reading;
  reading.executable_count = 0;
  reading.hash = 0;
  reading.index = next_buffer;
  int error = reserve(next_buffer, 1);
  if (error != 0) return error;
  buffers[next_buffer]->writable_count = 0;
  error = read_lines(maps_fd, &reading);
  if (error != 0) return error;
  struct stackd_code_ranges* ranges = buffers[next_buffer];
  merge_to(reading.executable, reading.executable_count, ranges->code);
  atomic_store_explicit(&published, ranges, memory_order_release);
  next_buffer = 1 - next_buffer;
  bool changed = reading.hash != executable_hash;
  executable_hash = reading.hash;
  return changed ? 1 : 0;
}
