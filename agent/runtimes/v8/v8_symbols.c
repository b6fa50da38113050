#include "agent/runtimes/v8/v8_walk.h"

#define NAME_BYTES 96u       /* of a name that is in pieces */
#define SCRIPT_LINE_OFFSET 3 /* source, name, then this, in all versions */
#define DEBUG_INFO_WORDS 7

/* Where the text of a script is, if that is one piece. */
STACKD_HANDLER static void describe_source(struct stackd_v8_walk* walk, struct stackd_v8_script* facts) {
  uint64_t words[4];
  int32_t type = stackd_v8_read_heap_object(walk, &facts->source, words, 4);
  struct stackd_v8_piece piece;
  if (type < 0 || type >= walk->layout->type.first_nonstring || !stackd_v8_find_piece(facts->source, words, type, &piece))
    return;
  facts->source_map = words[0];
  facts->chars = piece.chars;
  facts->chars_count = piece.count;
  facts->two_bytes = !piece.one_byte;
}

/* A URL of type `data:` has a module's whole text in it: no more than its type is a name. */
STACKD_HANDLER static void leave_out_data(const struct stackd_v8_walk* walk, struct stackd_v8_name* file) {
  static const char type[] = "data:";
  enum { UNITS = sizeof(type) - 1 };
  unsigned char head[2 * UNITS];
  uint32_t unit_bytes = file->written == STACKD_V8_UTF16 ? 2 : 1;
  if (file->bytes.size_bytes <= UNITS * unit_bytes) return;
  if (!stackd_managed_read(walk->thread, file->bytes.address, head, UNITS * unit_bytes)) return;
  for (uint32_t i = 0; i < UNITS; i++) {
    uint32_t unit = unit_bytes == 2 ? head[2 * i] | (uint32_t)head[2 * i + 1] << 8 : head[i];
    if (unit >= 'A' && unit <= 'Z') unit += 'a' - 'A';
    if (unit != (unsigned char)type[i]) return;
  }
  file->bytes.size_bytes = UNITS * unit_bytes;
}

/* What is known of `script`, which is read unless it was the last one. False if it is no Script. */
STACKD_HANDLER static bool know_script(struct stackd_v8_walk* walk, uint64_t script) {
  const struct stackd_v8_layout* layout = walk->layout;
  struct stackd_v8_known_script* known = &walk->script;
  if (known->script == script && script != 0) return true;
  uint64_t words[STACKD_V8_SCRIPT_WORDS];
  if (stackd_v8_read_heap_object(walk, &script, words, STACKD_V8_SCRIPT_WORDS) != layout->type.script) return false;
  known->script = script;
  known->file.bytes = (struct stackd_managed_bytes){0, 0};
  known->file.written = STACKD_V8_UTF8;
  known->facts.script = script;
  known->facts.source = words[layout->script_source / 8];
  known->facts.source_map = 0;
  known->facts.chars = 0;
  known->facts.chars_count = 0;
  known->facts.two_bytes = 0;
  uint64_t line_offset = words[SCRIPT_LINE_OFFSET];
  known->facts.line_offset = stackd_v8_is_small_integer(line_offset) ? (int32_t)(line_offset >> 32) : 0;
  known->facts.source_bytes_at = (int32_t)layout->script_source;
  describe_source(walk, &known->facts);
  if (stackd_v8_find_name(walk, words[layout->script_name / 8], NULL, &known->file)) leave_out_data(walk, &known->file);
  return true;
}

/* Where a debugger is at work a function has what that keeps of it in place of its script, which is in there. */
__attribute__((noinline)) STACKD_HANDLER static bool know_script_of(struct stackd_v8_walk* walk, const uint64_t* shared) {
  uint64_t script = shared[walk->layout->shared_script / 8];
  if (know_script(walk, script)) return true;
  if (stackd_v8_type_of(walk, &script) != walk->layout->type.debug_info) return false;
  for (uint32_t i = 1; i < DEBUG_INFO_WORDS; i++) {
    uint64_t object;
    if (!stackd_v8_read_word(walk, script - 1 + 8 * i, &object)) return false;
    if (know_script(walk, object)) return true;
  }
  return false;
}

/* Writes a function's name and file, once a thread. */
__attribute__((noinline)) STACKD_HANDLER static void write_function(struct stackd_v8_walk* walk, uint64_t key,
                                                                    const uint64_t* shared) {
  uint64_t* seen = &walk->seen[(key >> 3) % STACKD_V8_SEEN_FUNCTIONS];
  if (*seen == key) return;
  *seen = key;
  unsigned char bytes[NAME_BYTES];
  struct stackd_v8_text_buffer text = {bytes, NAME_BYTES, 0, 0};
  struct stackd_v8_name function = {{0, 0}, STACKD_V8_UTF8};
  stackd_v8_find_function_name(walk, shared, &text, &function);
  const struct stackd_v8_known_script* script = &walk->script;
  bool has_script = know_script_of(walk, shared);
  struct stackd_managed_bytes none = {0, 0};
  struct stackd_managed_symbol_source symbol;
  symbol.key = key;
  symbol.first_line = 0;
  symbol.table_format = function.written | (has_script ? script->file.written << 2 : 0);
  symbol.function = function.bytes;
  symbol.file = has_script ? script->file.bytes : none;
  symbol.table = none;
  if (has_script) symbol.table = (struct stackd_managed_bytes){(uint64_t)&script->facts, sizeof(script->facts)};
  stackd_managed_symbol(walk->writer, walk->thread, &symbol, NULL);
}

void stackd_v8_write_frame(struct stackd_v8_walk* walk, uint64_t fp, uint64_t shared, const uint64_t* words,
                           int64_t position) {
  stackd_managed_frame(walk->writer, 0, fp, shared, position);
  write_function(walk, shared, words);
}
