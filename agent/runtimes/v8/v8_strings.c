#include "agent/runtimes/v8/v8_walk.h"

#define MAX_NAME_UNITS (32u << 10)
#define CHUNK_BYTES 64u
#define MAX_STRING_PARTS 32u
#define MAX_STRING_DEPTH 4u

/* Instance types of strings (StringRepresentationMask, StringEncodingMask). */
enum { STRING_SEQUENTIAL = 0, STRING_CONS = 1, STRING_EXTERNAL = 2, STRING_SLICED = 3, STRING_THIN = 5 };
#define STRING_KIND 7u
#define STRING_ONE_BYTE 8u

STACKD_HANDLER static void put(struct stackd_v8_text_buffer* text, uint32_t character) {
  uint32_t size = character < 0x80 ? 1 : character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
  if (text->size_bytes + size > text->capacity) {
    text->capacity = text->size_bytes; /* nothing that is shorter may follow */
    return;
  }
  unsigned char* to = text->bytes + text->size_bytes;
  text->size_bytes += size;
  if (size == 1) {
    to[0] = character < 0x20 || character == 0x7f ? '?' : (unsigned char)character;
    return;
  }
  for (uint32_t i = size - 1; i > 0; i--) {
    to[i] = (unsigned char)(0x80 | (character & 0x3f));
    character >>= 6;
  }
  to[0] = (unsigned char)((size == 2 ? 0xc0 : size == 3 ? 0xe0 : 0xf0) | character);
}

STACKD_HANDLER static void put_unit(struct stackd_v8_text_buffer* text, uint32_t unit) {
  uint32_t first = text->first_half;
  text->first_half = 0;
  if (unit >= 0xdc00 && unit < 0xe000) {
    put(text, first != 0 ? 0x10000 + ((first - 0xd800) << 10) + (unit - 0xdc00) : '?');
    return;
  }
  if (first != 0) put(text, '?');
  if (unit >= 0xd800 && unit < 0xdc00) {
    text->first_half = unit;
  } else {
    put(text, unit);
  }
}

/* Characters in one piece. False if they cannot be read. */
STACKD_HANDLER static bool put_units(const struct stackd_v8_walk* walk, struct stackd_v8_text_buffer* text,
                                     uint64_t address, uint32_t count, bool one_byte) {
  unsigned char chunk[CHUNK_BYTES];
  uint32_t unit_bytes = one_byte ? 1 : 2;
  while (count > 0 && text->size_bytes < text->capacity) {
    uint32_t part = count < CHUNK_BYTES / unit_bytes ? count : CHUNK_BYTES / unit_bytes;
    if (!stackd_managed_read(walk->thread, address, chunk, part * unit_bytes)) return false;
    for (uint32_t i = 0; i < part; i++) {
      put_unit(text, one_byte ? chunk[i] : (uint32_t)chunk[2 * i] | (uint32_t)chunk[2 * i + 1] << 8);
    }
    address += part * unit_bytes;
    count -= part;
  }
  return true;
}

struct string {
  uint64_t object;
  uint32_t start;
  uint32_t count;
};

bool stackd_v8_find_piece(uint64_t object, const uint64_t* words, int32_t type, struct stackd_v8_piece* piece) {
  uint32_t kind = (uint32_t)type & STRING_KIND;
  if (kind != STRING_SEQUENTIAL && kind != STRING_EXTERNAL) return false;
  piece->chars = kind == STRING_SEQUENTIAL ? object - 1 + 16 : words[3];
  piece->count = (uint32_t)(words[1] >> 32);
  piece->one_byte = ((uint32_t)type & STRING_ONE_BYTE) != 0;
  return true;
}

/* Writes a String, whose parts may be strings again. False if it is none, or could not be read. */
STACKD_HANDLER static bool put_string(struct stackd_v8_walk* walk, uint64_t object, struct stackd_v8_text_buffer* text) {
  struct string todo[MAX_STRING_DEPTH];
  uint32_t depth = 1;
  todo[0] = (struct string){object, 0, UINT32_MAX};
  for (uint32_t parts = 0; depth > 0 && parts < MAX_STRING_PARTS; parts++) {
    struct string part = todo[--depth];
    uint64_t words[4];
    int32_t type = stackd_v8_read_heap_object(walk, &part.object, words, 4);
    if (type < 0 || type >= walk->layout->type.first_nonstring) return false;
    uint32_t length = (uint32_t)(words[1] >> 32);
    if (part.start > length) return false;
    if (part.count > length - part.start) part.count = length - part.start;
    uint32_t kind = (uint32_t)type & STRING_KIND;
    struct stackd_v8_piece piece;
    if (stackd_v8_find_piece(part.object, words, type, &piece)) {
      uint64_t address = piece.chars + (uint64_t)part.start * (piece.one_byte ? 1 : 2);
      if (!put_units(walk, text, address, part.count, piece.one_byte)) return false;
    } else if (kind == STRING_THIN) {
      todo[depth++] = (struct string){words[2], part.start, part.count};
    } else if (kind == STRING_SLICED) {
      if (!stackd_v8_is_small_integer(words[3])) return false;
      uint64_t start = (words[3] >> 32) + part.start;
      if (start > INT32_MAX) return false;
      todo[depth++] = (struct string){words[2], (uint32_t)start, part.count};
    } else if (kind == STRING_CONS && part.start == 0 && depth + 2 <= MAX_STRING_DEPTH) {
      todo[depth++] = (struct string){words[3], 0, UINT32_MAX};
      todo[depth++] = (struct string){words[2], 0, UINT32_MAX};
    } else {
      return false;
    }
  }
  return true;
}

/* Follows what only stands for another String, or for a part of one, to the characters: one step. False where there is none
 * to go: at the characters themselves, or where they are in pieces. */
STACKD_HANDLER static bool follow(struct stackd_v8_walk* walk, struct string* string, const uint64_t* words, int32_t type) {
  uint32_t kind = (uint32_t)type & STRING_KIND;
  if (kind == STRING_THIN) {
    string->object = words[2];
    return true;
  }
  if (kind == STRING_SLICED && stackd_v8_is_small_integer(words[3]) && words[3] >> 32 <= INT32_MAX - string->start) {
    string->object = words[2];
    string->start += (uint32_t)(words[3] >> 32);
    return true;
  }
  if (kind != STRING_CONS) return false;
  /* A string that was made flat has all in its first part. */
  uint64_t second = words[3];
  uint64_t head[2];
  if (stackd_v8_read_heap_object(walk, &second, head, 2) < 0 || head[1] >> 32 != 0) return false;
  string->object = words[2];
  return true;
}

bool stackd_v8_find_name(struct stackd_v8_walk* walk, uint64_t object, struct stackd_v8_text_buffer* text,
                         struct stackd_v8_name* name) {
  struct string string = {object, 0, UINT32_MAX};
  for (uint32_t i = 0; i < MAX_STRING_DEPTH; i++) {
    uint64_t words[4];
    int32_t type = stackd_v8_read_heap_object(walk, &string.object, words, 4);
    if (type < 0 || type >= walk->layout->type.first_nonstring) return false;
    if (i == 0) string.count = (uint32_t)(words[1] >> 32);
    struct stackd_v8_piece piece;
    if (stackd_v8_find_piece(string.object, words, type, &piece)) {
      if (string.count == 0 || string.start > piece.count || string.count > piece.count - string.start) return false;
      uint32_t unit_bytes = piece.one_byte ? 1 : 2;
      uint32_t count = string.count < MAX_NAME_UNITS ? string.count : MAX_NAME_UNITS;
      name->bytes.address = piece.chars + (uint64_t)string.start * unit_bytes;
      name->bytes.size_bytes = count * unit_bytes;
      name->written = piece.one_byte ? STACKD_V8_LATIN1 : STACKD_V8_UTF16;
      return true;
    }
    if (!follow(walk, &string, words, type)) break;
  }
  if (text == NULL || !put_string(walk, object, text) || text->size_bytes == 0) return false;
  name->bytes = (struct stackd_managed_bytes){(uint64_t)text->bytes, text->size_bytes};
  name->written = STACKD_V8_UTF8;
  return true;
}

/* Finds the function's name that a ScopeInfo keeps, or the one that the parser made up for it. It lies behind the
 * variables' names and what is known of each. */
STACKD_HANDLER static void find_scope_name(struct stackd_v8_walk* walk, uint64_t scope, struct stackd_v8_text_buffer* text,
                                           struct stackd_v8_name* name) {
  enum { INLINE_NAMES = 75, TRIED = 6 };
  const struct stackd_v8_layout* layout = walk->layout;
  uint64_t locals;
  if (!stackd_v8_read_word(walk, scope - 1 + layout->scope_locals, &locals) || !stackd_v8_is_small_integer(locals)) return;
  uint64_t count = locals >> 32;
  if (count > 1u << 16) return;
  uint64_t words = count < INLINE_NAMES ? 2 * count : 1 + count;
  uint64_t at = scope - 1 + layout->scope_first + 8 * words;
  for (uint32_t i = 0; i < TRIED; i++) {
    uint64_t object;
    if (!stackd_v8_read_word(walk, at + 8 * i, &object)) return;
    if (!stackd_v8_is_heap_object(object)) continue;
    if (stackd_v8_find_name(walk, object, text, name)) return;
    if (stackd_v8_type_of(walk, &object) == layout->type.scope_info) return; /* what follows is no name of this function */
  }
}

void stackd_v8_find_function_name(struct stackd_v8_walk* walk, const uint64_t* shared, struct stackd_v8_text_buffer* text,
                                  struct stackd_v8_name* name) {
  uint64_t object = shared[walk->layout->shared_name / 8];
  if (!stackd_v8_find_name(walk, object, text, name) && stackd_v8_type_of(walk, &object) == walk->layout->type.scope_info) {
    find_scope_name(walk, object, text, name);
  }
}
