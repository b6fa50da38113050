#include "agent/runtimes/version_text.h"

#include <string.h>

#include "agent/sys/syscalls.h"
#include "agent/sys/target.h"

#define MAX_BYTES 32u

/* A text may end right before memory that cannot be read. */
static void copy_c_string(uint64_t address, char text[MAX_BYTES]) {
  memset(text, 0, MAX_BYTES);
  for (size_t i = 0; i + 1 < MAX_BYTES; i++) {
    if (stackd_read_memory(stackd_target_pid(), address + i, &text[i], 1) != 1 || text[i] == '\0') return;
  }
}

bool stackd_is_text_at(uint64_t address, const char* text) {
  char read[MAX_BYTES];
  copy_c_string(address, read);
  return strcmp(read, text) == 0;
}

uint32_t stackd_version_at(uint64_t address) {
  char text[MAX_BYTES];
  uint32_t parts[3] = {0, 0, 0};
  copy_c_string(address, text);
  const char* at = text;
  for (size_t part = 0; part < 3; part++) {
    for (; *at >= '0' && *at <= '9' && parts[part] < 100; at++) parts[part] = parts[part] * 10 + (uint32_t)(*at - '0');
    if (*at != '.') break;
    at++;
  }
  return parts[0] * 10000 + parts[1] * 100 + parts[2];
}
