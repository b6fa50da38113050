#include "agent/sys/text.h"

#define DIGITS "0123456789abcdef"

struct stackd_text stackd_text_in(char* buffer, size_t size_bytes) {
  buffer[0] = '\0';
  return (struct stackd_text){buffer, 0, size_bytes};
}

void stackd_put_bytes(struct stackd_text* text, const char* bytes, size_t count) {
  size_t room = text->size_bytes - 1 - text->length;
  if (count > room) count = room;
  for (size_t i = 0; i < count; i++) text->start[text->length + i] = bytes[i];
  text->length += count;
  text->start[text->length] = '\0';
}

void stackd_put(struct stackd_text* text, const char* string) {
  size_t length = 0;
  while (string[length] != '\0') length++;
  stackd_put_bytes(text, string, length);
}

void stackd_put_number(struct stackd_text* text, uint64_t number, unsigned base) {
  char digits[64];
  size_t at = sizeof(digits);
  do {
    digits[--at] = DIGITS[number % base];
    number /= base;
  } while (number != 0);
  stackd_put_bytes(text, digits + at, sizeof(digits) - at);
}

void stackd_put_ipv4(struct stackd_text* text, const uint8_t bytes[4]) {
  for (int i = 0; i < 4; i++) {
    if (i > 0) stackd_put(text, ".");
    stackd_put_number(text, bytes[i], 10);
  }
}

static unsigned group_of(const uint8_t bytes[16], int index) {
  return (unsigned)bytes[2 * index] << 8 | bytes[2 * index + 1];
}

void stackd_put_ipv6(struct stackd_text* text, const uint8_t bytes[16]) {
  unsigned before_mapped = 0;
  for (int i = 0; i < 5; i++) before_mapped |= group_of(bytes, i);
  if (before_mapped == 0 && group_of(bytes, 5) == 0xffff) {
    stackd_put(text, "::ffff:");
    stackd_put_ipv4(text, bytes + 12);
    return;
  }
  int zeros_at = -1;
  int zeros = 1;
  for (int i = 0; i < 8; i++) {
    int end = i;
    while (end < 8 && group_of(bytes, end) == 0) end++;
    if (end - i <= zeros) continue;
    zeros_at = i;
    zeros = end - i;
  }
  for (int i = 0; i < 8; i++) {
    if (i == zeros_at) {
      stackd_put(text, "::");
      i += zeros - 1;
      continue;
    }
    if (i > 0 && i != zeros_at + zeros) stackd_put(text, ":");
    stackd_put_number(text, group_of(bytes, i), 16);
  }
}

static unsigned digit(char c) {
  if (c >= '0' && c <= '9') return (unsigned)(c - '0');
  if (c >= 'a' && c <= 'f') return (unsigned)(c - 'a') + 10;
  if (c >= 'A' && c <= 'F') return (unsigned)(c - 'A') + 10;
  return ~0u;
}

uint64_t stackd_take_number(const char** at, unsigned base) {
  const char* c = *at;
  while (*c == ' ' || *c == '\t') c++;
  if (base == 16 && c[0] == '0' && c[1] == 'x') c += 2;
  const char* first = c;
  uint64_t number = 0;
  for (; digit(*c) < base; c++) {
    if (number > (UINT64_MAX - digit(*c)) / base) return 0;
    number = number * base + digit(*c);
  }
  if (c == first) return 0;
  *at = c;
  return number;
}
