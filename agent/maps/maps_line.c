#include "agent/maps/maps_line.h"

enum field { START, END, PERMS, OFFSET, DEVICE, INODE, PATH };

static const char kMainStack[] = "[stack]";

void stackd_maps_line_clear(struct stackd_maps_line* line) {
  line->range.start = 0;
  line->range.end = 0;
  line->readable = false;
  line->writable = false;
  line->executable = false;
  line->is_main_stack = false;
  line->file_offset = 0;
  line->inode = 0;
  line->field = START;
  line->position = 0;
}

STACKD_HANDLER static void take_digit(uint64_t* value, char c, uint32_t base) {
  *value = *value * base + (uint64_t)(c >= 'a' ? c - 'a' + 10 : c - '0');
}

/* The path is padded with spaces in front. */
STACKD_HANDLER static void take_path(struct stackd_maps_line* line, char c) {
  if (c == ' ' && line->position == 0) return;
  line->is_main_stack = line->position < sizeof(kMainStack) - 1 && c == kMainStack[line->position] &&
                        (line->position == 0 || line->is_main_stack);
  line->position++;
}

bool stackd_maps_line_take(struct stackd_maps_line* line, char c) {
  if (c == '\n') {
    if (line->position != sizeof(kMainStack) - 1) line->is_main_stack = false;
    return true;
  }
  if (line->field != PATH && (c == ' ' || c == '-') && !(line->field == PERMS && c == '-')) {
    line->field++;
    line->position = 0;
    return false;
  }
  switch (line->field) {
    case START:
      take_digit(&line->range.start, c, 16);
      break;
    case END:
      take_digit(&line->range.end, c, 16);
      break;
    case PERMS:
      if (c == 'r') line->readable = true;
      if (c == 'w') line->writable = true;
      if (c == 'x') line->executable = true;
      break;
    case OFFSET:
      take_digit(&line->file_offset, c, 16);
      break;
    case INODE:
      take_digit(&line->inode, c, 10);
      break;
    case PATH:
      take_path(line, c);
      break;
    default:
      break;
  }
  return false;
}
