/* The walk goes from frame to frame by V8's own links, from the innermost frame that V8 knows to the outermost entry that
 * it knows. Nothing is searched for. So nothing that a call left behind on the stack is taken for a frame. */
#include "agent/runtimes/v8/v8.h"

#include "stackd/v8_trace.h"

#define MAX_FRAMES 512u
#define MAX_HOPS 2048u /* frames that are no function of a script count here too */
#define KNOWN_MAPS 16u
#define SEEN_FUNCTIONS 16u
#define NAME_BYTES 96u /* of one that is in pieces */
#define MAX_NAME_UNITS (32u << 10)
#define CHUNK_BYTES 64u
#define TABLE_CHUNK_BYTES 256u
#define MAX_STRING_PARTS 32u
#define MAX_STRING_DEPTH 4u
#define SHARED_CODE 1        /* what runs the function: bytecodes, or baseline code */
#define SCRIPT_LINE_OFFSET 3 /* source, name, then this, in all versions */
#define DEBUG_INFO_WORDS 7
#define MAX_POSITION_BYTES (32u << 10)
#define MAX_INLINED 32u

/* A frame by its words from fp - 40 up. */
enum { FRAME_BYTECODE_OFFSET = 0, FRAME_BYTECODES = 1, FRAME_FUNCTION = 3, FRAME_CONTEXT = 4, FRAME_FP = 5, FRAME_PC = 6 };
#define FRAME_WORDS 7
#define FRAME_BELOW_FP 40u

/* What a frame has in place of a context if it is no function's: its type, times 2. */
#define MARKER_ENTRY 2u
#define MARKER_CONSTRUCT_ENTRY 4u
/* An entry frame keeps the c_entry_fp of the activation before it: marker, context, five registers, then this. */
#define ENTRY_NEXT_EXIT_BELOW_FP 64u

/* Instance types of strings (StringRepresentationMask, StringEncodingMask). */
enum { STRING_SEQUENTIAL = 0, STRING_CONS = 1, STRING_EXTERNAL = 2, STRING_SLICED = 3, STRING_THIN = 5 };
#define STRING_KIND 7u
#define STRING_ONE_BYTE 8u

/* A text, where it lies. */
struct name {
  struct stackd_managed_bytes bytes;
  uint32_t written; /* stackd_v8_text */
};

/* A script, with what stackd_managed_symbol says of it. */
struct known_script {
  uint64_t script; /* 0: none */
  struct stackd_v8_script facts;
  struct name file;
};

/* One call in optimized code. */
struct optimized {
  int64_t source;
  struct stackd_managed_bytes inlining; /* an entry a function that was inlined: where, and which, each a word */
  uint64_t literals;                    /* an array, tagged, in which are those */
};

/* A place in compiled code, with what is known of it. */
struct known_place {
  uint64_t function, pc; /* 0: none */
  bool is_optimized;     /* and all that its code says of it is there; else: */
  int64_t place;         /* in the script */
  struct optimized code;
};

struct walk {
  const struct stackd_managed_thread* thread;
  const struct stackd_v8_layout* layout;
  struct stackd_managed_writer* writer;
  uint64_t isolate;
  uint64_t known_maps[KNOWN_MAPS];
  uint16_t known_types[KNOWN_MAPS];
  uint64_t seen[SEEN_FUNCTIONS];
  struct known_script script;  /* functions of one script often stand together */
  struct known_place compiled; /* recursion */
};

STACKD_HANDLER static bool read_word(const struct walk* walk, uint64_t address, uint64_t* word) {
  return stackd_managed_read(walk->thread, address, word, sizeof(*word));
}

STACKD_HANDLER static bool is_heap_object(uint64_t value) { return (value & 3) == 1 && value > 4096; }

STACKD_HANDLER static bool is_small_integer(uint64_t value) { return (value & 0xffffffffu) == 0; }

/* The instance type that a map stands for; -1 if it is none. */
STACKD_HANDLER static int32_t type_of_map(struct walk* walk, uint64_t map) {
  if (!is_heap_object(map)) return -1;
  uint32_t place = (uint32_t)(map >> 3) % KNOWN_MAPS;
  if (walk->known_maps[place] == map) return walk->known_types[place];
  uint16_t type;
  if (!stackd_managed_read(walk->thread, map - 1 + walk->layout->map_type, &type, sizeof(type))) return -1;
  walk->known_maps[place] = map;
  walk->known_types[place] = type;
  return type;
}

/* Copies the first `count` words of a heap object and tells its type; -1 if there is no such object. One that the garbage
 * collector has just moved has its new address in place of a map; `*object` is set to that. */
STACKD_HANDLER static int32_t read_heap_object(struct walk* walk, uint64_t* object, uint64_t* words, uint32_t count) {
  if (!is_heap_object(*object)) return -1;
  if (!stackd_managed_read(walk->thread, *object - 1, words, 8 * count)) return -1;
  if ((words[0] & 1) == 0 && words[0] != 0) {
    *object = words[0] | 1;
    if (!stackd_managed_read(walk->thread, *object - 1, words, 8 * count)) return -1;
  }
  return type_of_map(walk, words[0]);
}

STACKD_HANDLER static int32_t type_of(struct walk* walk, uint64_t* object) {
  uint64_t map;
  return read_heap_object(walk, object, &map, 1);
}

/* UTF-8 into a buffer. */
struct text {
  unsigned char* bytes;
  uint32_t capacity;
  uint32_t size_bytes;
  uint32_t first_half; /* of a pair of surrogates; 0: none */
};

STACKD_HANDLER static void put(struct text* text, uint32_t character) {
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

STACKD_HANDLER static void put_unit(struct text* text, uint32_t unit) {
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
STACKD_HANDLER static bool put_units(const struct walk* walk, struct text* text, uint64_t address, uint32_t count,
                                     bool one_byte) {
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

/* A String that is one piece: where its characters are. False for others. */
struct piece {
  uint64_t chars;
  uint32_t count;
  bool one_byte;
};

STACKD_HANDLER static bool find_piece(uint64_t object, const uint64_t* words, int32_t type, struct piece* piece) {
  uint32_t kind = (uint32_t)type & STRING_KIND;
  if (kind != STRING_SEQUENTIAL && kind != STRING_EXTERNAL) return false;
  piece->chars = kind == STRING_SEQUENTIAL ? object - 1 + 16 : words[3];
  piece->count = (uint32_t)(words[1] >> 32);
  piece->one_byte = ((uint32_t)type & STRING_ONE_BYTE) != 0;
  return true;
}

/* Writes a String, whose parts may be strings again. False if it is none, or could not be read. */
STACKD_HANDLER static bool put_string(struct walk* walk, uint64_t object, struct text* text) {
  struct string todo[MAX_STRING_DEPTH];
  uint32_t depth = 1;
  todo[0] = (struct string){object, 0, UINT32_MAX};
  for (uint32_t parts = 0; depth > 0 && parts < MAX_STRING_PARTS; parts++) {
    struct string part = todo[--depth];
    uint64_t words[4];
    int32_t type = read_heap_object(walk, &part.object, words, 4);
    if (type < 0 || type >= walk->layout->type.first_nonstring) return false;
    uint32_t length = (uint32_t)(words[1] >> 32);
    if (part.start > length) return false;
    if (part.count > length - part.start) part.count = length - part.start;
    uint32_t kind = (uint32_t)type & STRING_KIND;
    struct piece piece;
    if (find_piece(part.object, words, type, &piece)) {
      uint64_t address = piece.chars + (uint64_t)part.start * (piece.one_byte ? 1 : 2);
      if (!put_units(walk, text, address, part.count, piece.one_byte)) return false;
    } else if (kind == STRING_THIN) {
      todo[depth++] = (struct string){words[2], part.start, part.count};
    } else if (kind == STRING_SLICED) {
      if (!is_small_integer(words[3])) return false;
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
STACKD_HANDLER static bool follow(struct walk* walk, struct string* string, const uint64_t* words, int32_t type) {
  uint32_t kind = (uint32_t)type & STRING_KIND;
  if (kind == STRING_THIN) {
    string->object = words[2];
    return true;
  }
  if (kind == STRING_SLICED && is_small_integer(words[3]) && words[3] >> 32 <= INT32_MAX - string->start) {
    string->object = words[2];
    string->start += (uint32_t)(words[3] >> 32);
    return true;
  }
  if (kind != STRING_CONS) return false;
  /* A string that was made flat has all in its first part. */
  uint64_t second = words[3];
  uint64_t head[2];
  if (read_heap_object(walk, &second, head, 2) < 0 || head[1] >> 32 != 0) return false;
  string->object = words[2];
  return true;
}

/* Finds a String's characters, or writes them to `text`, which may be NULL, if they are in pieces. False if it is no
 * String, is empty, or could not be read. */
STACKD_HANDLER static bool find_name(struct walk* walk, uint64_t object, struct text* text, struct name* name) {
  struct string string = {object, 0, UINT32_MAX};
  for (uint32_t i = 0; i < MAX_STRING_DEPTH; i++) {
    uint64_t words[4];
    int32_t type = read_heap_object(walk, &string.object, words, 4);
    if (type < 0 || type >= walk->layout->type.first_nonstring) return false;
    if (i == 0) string.count = (uint32_t)(words[1] >> 32);
    struct piece piece;
    if (find_piece(string.object, words, type, &piece)) {
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
STACKD_HANDLER static void find_scope_name(struct walk* walk, uint64_t scope, struct text* text, struct name* name) {
  enum { INLINE_NAMES = 75, TRIED = 6 };
  const struct stackd_v8_layout* layout = walk->layout;
  uint64_t locals;
  if (!read_word(walk, scope - 1 + layout->scope_locals, &locals) || !is_small_integer(locals)) return;
  uint64_t count = locals >> 32;
  if (count > 1u << 16) return;
  uint64_t words = count < INLINE_NAMES ? 2 * count : 1 + count;
  uint64_t at = scope - 1 + layout->scope_first + 8 * words;
  for (uint32_t i = 0; i < TRIED; i++) {
    uint64_t object;
    if (!read_word(walk, at + 8 * i, &object)) return;
    if (!is_heap_object(object)) continue;
    if (find_name(walk, object, text, name)) return;
    if (type_of(walk, &object) == layout->type.scope_info) return; /* what follows is no name of this function */
  }
}

__attribute__((noinline)) STACKD_HANDLER static void find_function_name(struct walk* walk, const uint64_t* shared,
                                                                        struct text* text, struct name* name) {
  uint64_t object = shared[walk->layout->shared_name / 8];
  if (!find_name(walk, object, text, name) && type_of(walk, &object) == walk->layout->type.scope_info) {
    find_scope_name(walk, object, text, name);
  }
}

/* Where the text of a script is, if that is one piece. */
STACKD_HANDLER static void describe_source(struct walk* walk, struct stackd_v8_script* facts) {
  uint64_t words[4];
  int32_t type = read_heap_object(walk, &facts->source, words, 4);
  struct piece piece;
  if (type < 0 || type >= walk->layout->type.first_nonstring || !find_piece(facts->source, words, type, &piece)) return;
  facts->source_map = words[0];
  facts->chars = piece.chars;
  facts->chars_count = piece.count;
  facts->two_bytes = !piece.one_byte;
}

/* A URL of type `data:` has a module's whole text in it: no more than its type is a name. */
STACKD_HANDLER static void leave_out_data(const struct walk* walk, struct name* file) {
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
STACKD_HANDLER static bool know_script(struct walk* walk, uint64_t script) {
  const struct stackd_v8_layout* layout = walk->layout;
  struct known_script* known = &walk->script;
  if (known->script == script && script != 0) return true;
  uint64_t words[STACKD_V8_SCRIPT_WORDS];
  if (read_heap_object(walk, &script, words, STACKD_V8_SCRIPT_WORDS) != layout->type.script) return false;
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
  known->facts.line_offset = is_small_integer(line_offset) ? (int32_t)(line_offset >> 32) : 0;
  known->facts.source_bytes_at = (int32_t)layout->script_source;
  describe_source(walk, &known->facts);
  if (find_name(walk, words[layout->script_name / 8], NULL, &known->file)) leave_out_data(walk, &known->file);
  return true;
}

/* Where a debugger is at work a function has what that keeps of it in place of its script, which is in there. */
__attribute__((noinline)) STACKD_HANDLER static bool know_script_of(struct walk* walk, const uint64_t* shared) {
  uint64_t script = shared[walk->layout->shared_script / 8];
  if (know_script(walk, script)) return true;
  if (type_of(walk, &script) != walk->layout->type.debug_info) return false;
  for (uint32_t i = 1; i < DEBUG_INFO_WORDS; i++) {
    uint64_t object;
    if (!read_word(walk, script - 1 + 8 * i, &object)) return false;
    if (know_script(walk, object)) return true;
  }
  return false;
}

/* Writes a function's name and file, once a thread. */
__attribute__((noinline)) STACKD_HANDLER static void write_function(struct walk* walk, uint64_t key,
                                                                    const uint64_t* shared) {
  uint64_t* seen = &walk->seen[(key >> 3) % SEEN_FUNCTIONS];
  if (*seen == key) return;
  *seen = key;
  unsigned char bytes[NAME_BYTES];
  struct text text = {bytes, NAME_BYTES, 0, 0};
  struct name function = {{0, 0}, STACKD_V8_UTF8};
  find_function_name(walk, shared, &text, &function);
  const struct known_script* script = &walk->script;
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

/* Bytes of a table, one after the other. */
struct bytes {
  const struct walk* walk;
  uint64_t address;
  uint32_t left;
  uint32_t in_chunk;
  uint32_t at;
  unsigned char chunk[TABLE_CHUNK_BYTES];
};

STACKD_HANDLER static void begin_bytes(struct bytes* bytes, const struct walk* walk, struct stackd_managed_bytes table) {
  bytes->walk = walk;
  bytes->address = table.address;
  bytes->left = table.size_bytes;
  bytes->in_chunk = 0;
  bytes->at = 0;
}

STACKD_HANDLER static bool next_byte(struct bytes* bytes, uint32_t* byte) {
  if (bytes->at == bytes->in_chunk) {
    if (bytes->left == 0) return false;
    uint32_t part = bytes->left < TABLE_CHUNK_BYTES ? bytes->left : TABLE_CHUNK_BYTES;
    if (!stackd_managed_read(bytes->walk->thread, bytes->address, bytes->chunk, part)) return false;
    bytes->address += part;
    bytes->left -= part;
    bytes->in_chunk = part;
    bytes->at = 0;
  }
  *byte = bytes->chunk[bytes->at++];
  return true;
}

/* Reads a number: seven bits a byte, the lowest first. */
STACKD_HANDLER static bool next_unsigned(struct bytes* bytes, uint64_t* number) {
  *number = 0;
  for (uint32_t shift = 0; shift < 63; shift += 7) {
    uint32_t byte;
    if (!next_byte(bytes, &byte)) return false;
    *number |= (uint64_t)(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return true;
  }
  return false;
}

/* Reads a number whose lowest bit of all is the sign. */
STACKD_HANDLER static bool next_number(struct bytes* bytes, int64_t* number) {
  uint64_t value;
  if (!next_unsigned(bytes, &value)) return false;
  *number = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
  return true;
}

/* Decodes a SourcePosition of V8. It holds whether it is outside of scripts, then 30 bits of a place in one, plus 1. Above
 * is what was inlined there, by its number plus 1. */
STACKD_HANDLER static int64_t place_of(int64_t source) {
  return (source & 1) != 0 ? STACKD_V8_NO_POSITION : ((source >> 1) & 0x3fffffff) - 1;
}

STACKD_HANDLER static int64_t inlined_of(int64_t source) { return ((source >> 31) & 0xffff) - 1; }

/* The SourcePosition that a table has for an offset in the code; -1: none. The table is of differences: of offsets (below
 * zero, from -1 down, where the place is one of an expression), and of SourcePositions. */
STACKD_HANDLER static int64_t source_at(const struct walk* walk, struct stackd_managed_bytes table, int64_t code_offset) {
  struct bytes bytes;
  begin_bytes(&bytes, walk, table);
  int64_t offset = 0, source = 0, result = -1;
  int64_t offset_step, source_step;
  while (next_number(&bytes, &offset_step) && next_number(&bytes, &source_step)) {
    offset += offset_step < 0 ? -(offset_step + 1) : offset_step;
    if (offset > code_offset || offset < 0) break;
    /* Kept within what one can be: an addition of foreign numbers must not overflow. */
    source = (source + source_step) & 0xffffffffffffll;
    result = source;
  }
  return result;
}

/* An array of bytes begins with its length. */
STACKD_HANDLER static bool find_bytes(struct walk* walk, uint64_t object, struct stackd_managed_bytes* bytes) {
  uint64_t head[2];
  int32_t type = read_heap_object(walk, &object, head, 2);
  if (type != walk->layout->type.byte_array && type != walk->layout->type.trusted_byte_array) return false;
  if (!is_small_integer(head[1]) || head[1] >> 32 > MAX_POSITION_BYTES) return false;
  bytes->address = object - 1 + 16;
  bytes->size_bytes = (uint32_t)(head[1] >> 32);
  return true;
}

/* Where a function is in its script, by an offset in its bytecodes. */
__attribute__((noinline)) STACKD_HANDLER static int64_t place_in_bytecodes(struct walk* walk, uint64_t bytecodes,
                                                                           int64_t offset) {
  const struct stackd_v8_layout* layout = walk->layout;
  uint64_t words[STACKD_V8_BYTECODES_WORDS];
  if (read_heap_object(walk, &bytecodes, words, STACKD_V8_BYTECODES_WORDS) != layout->type.bytecode_array) {
    return STACKD_V8_NO_POSITION;
  }
  /* Before the first error is thrown there may be none. */
  struct stackd_managed_bytes table;
  if (!find_bytes(walk, words[layout->bytecode_positions / 8], &table)) return STACKD_V8_NO_POSITION;
  int64_t source = source_at(walk, table, offset);
  return source < 0 ? STACKD_V8_NO_POSITION : place_of(source);
}

/* What V8 shares among closures of one function; 0 if `*function` is none. */
__attribute__((noinline)) STACKD_HANDLER static uint64_t shared_of(struct walk* walk, uint64_t* function) {
  uint64_t words[STACKD_V8_FUNCTION_WORDS];
  int32_t type = read_heap_object(walk, function, words, STACKD_V8_FUNCTION_WORDS);
  if (type < walk->layout->type.first_function || type > walk->layout->type.last_function) return 0;
  return words[walk->layout->function_shared / 8];
}

/* --- Compiled code --- */

/* Machine code, and what is kept of it. */
struct code {
  uint64_t start;
  uint32_t size_bytes;
  uint64_t positions; /* baseline code: of machine code, a number a bytecode */
  uint64_t deopt;     /* baseline code: the bytecodes */
};

/* Which has a call that returns to `pc`, or is at the instruction before. */
STACKD_HANDLER static bool find_code(struct walk* walk, uint64_t object, uint64_t pc, struct code* code) {
  const struct stackd_v8_layout* layout = walk->layout;
  uint64_t words[STACKD_V8_CODE_WORDS];
  if (read_heap_object(walk, &object, words, STACKD_V8_CODE_WORDS) != layout->type.code) return false;
  code->start = layout->code_start != 0 ? words[layout->code_start / 8] : object - 1 + layout->code_bytes;
  code->size_bytes = (uint32_t)(words[layout->code_size / 8] >> (layout->code_size % 8 * 8));
  code->positions = words[layout->code_positions / 8];
  code->deopt = words[layout->code_deopt / 8];
  return pc > code->start && pc - code->start <= code->size_bytes;
}

/* The next bytecode's size, with its prefix; reads over it. 0: there is none. */
STACKD_HANDLER static uint32_t next_bytecode(const struct walk* walk, struct bytes* bytes) {
  uint32_t first, bytecode, prefix_bytes = 0, operand_bytes = 1;
  if (!next_byte(bytes, &first)) return 0;
  bytecode = first;
  if (first < STACKD_V8_PREFIXES) {
    prefix_bytes = 1;
    operand_bytes = first % 2 == 0 ? 2 : 4;
    if (!next_byte(bytes, &bytecode)) return 0;
  }
  uint32_t size_bytes = stackd_v8_bytecode_size(&walk->layout->bytecodes, bytecode, operand_bytes);
  for (uint32_t i = 1; i < size_bytes; i++) {
    if (!next_byte(bytes, &first)) return 0;
  }
  return size_bytes == 0 ? 0 : prefix_bytes + size_bytes;
}

/* The bytecode whose machine code ends at or behind `pc_offset`: first comes what is before all bytecodes. -1: none. */
STACKD_HANDLER static int64_t bytecode_offset_at(const struct walk* walk, struct stackd_managed_bytes table,
                                                 struct stackd_managed_bytes bytecodes, uint64_t pc_offset) {
  struct bytes sizes, code;
  begin_bytes(&sizes, walk, table);
  begin_bytes(&code, walk, bytecodes);
  int64_t at = -1;
  uint64_t end, size_bytes, next = 0;
  if (!next_unsigned(&sizes, &end)) return -1;
  while (end < pc_offset) {
    uint32_t bytecode_bytes = next_bytecode(walk, &code);
    if (bytecode_bytes == 0 || !next_unsigned(&sizes, &size_bytes) || size_bytes > UINT32_MAX) return -1;
    end += size_bytes;
    at = (int64_t)next;
    next += bytecode_bytes;
  }
  return at;
}

/* Baseline code has the frames of the interpreter, and belongs to what closures share. False if the function has none, or
 * that is not what is executed. `pc_end` is behind the instruction. */
__attribute__((noinline)) STACKD_HANDLER static bool find_in_baseline(struct walk* walk, const uint64_t* shared_words,
                                                                      uint64_t pc_end, int64_t* place) {
  struct code code;
  uint64_t words[2];
  struct stackd_managed_bytes table, bytecodes;
  if (!find_code(walk, shared_words[SHARED_CODE], pc_end, &code)) return false;
  if (read_heap_object(walk, &code.deopt, words, 2) != walk->layout->type.bytecode_array) return false;
  if (!is_small_integer(words[1]) || words[1] >> 32 > MAX_POSITION_BYTES) return false;
  bytecodes.address = code.deopt - 1 + walk->layout->bytecode_first;
  bytecodes.size_bytes = (uint32_t)(words[1] >> 32);
  if (!find_bytes(walk, code.positions, &table)) return false;
  int64_t offset = bytecode_offset_at(walk, table, bytecodes, pc_end - code.start);
  *place = offset < 0 ? STACKD_V8_NO_POSITION : place_in_bytecodes(walk, code.deopt, offset);
  return true;
}

/* Optimized code keeps for each call where in which function that was, and which functions were compiled into it. Elsewhere
 * its positions are left out: a thread that was interrupted between two calls has none. */

/* The machine code that a function has now; 0: not known. */
STACKD_HANDLER static uint64_t code_of(const struct walk* walk, uint64_t function) {
  const struct stackd_v8_layout* layout = walk->layout;
  uint64_t word, table, entry[2];
  if (!read_word(walk, function - 1 + layout->function_code, &word)) return 0;
  if (layout->dispatch_table == 0) return word;
  /* An entry has 16 bytes; the low 8 bits of what is in the function are none of its number. */
  if (!read_word(walk, walk->isolate + layout->dispatch_table, &table)) return 0;
  uint64_t at = table + ((word & 0xffffffffu) >> 8) * sizeof(entry);
  if (!stackd_managed_read(walk->thread, at, entry, sizeof(entry))) return 0;
  return entry[1] >> 16 | 1;
}

STACKD_HANDLER static bool is_fixed_array(const struct walk* walk, int32_t type) {
  const uint16_t* types = walk->layout->type.fixed_arrays;
  return type > 0 && (type == types[0] || type == types[1] || type == types[2]);
}

/* What the code of `function` says of a call that returns to `pc`. False if it is not that code's, or other code than
 * optimized. */
__attribute__((noinline)) STACKD_HANDLER static bool find_optimized(struct walk* walk, uint64_t function, uint64_t pc,
                                                                    struct optimized* out) {
  const struct stackd_v8_layout* layout = walk->layout;
  uint64_t words[STACKD_V8_DEOPT_WORDS];
  struct code code;
  if (!find_code(walk, code_of(walk, function), pc, &code)) return false;
  if (!is_fixed_array(walk, read_heap_object(walk, &code.deopt, words, STACKD_V8_DEOPT_WORDS))) return false;
  const uint64_t* entries = words + 2;
  uint64_t exits = entries[layout->deopt_inlining + 1];
  bool has_entries = is_small_integer(words[1]) && words[1] >> 32 > layout->deopt_inlining + 1 && is_small_integer(exits);
  /* What is to be given up when it is returned to goes to one of its exits instead: where from is not known. */
  if (!has_entries || pc - code.start > exits >> 32) return false;
  struct stackd_managed_bytes table;
  out->literals = entries[layout->deopt_literals];
  if (!find_bytes(walk, entries[layout->deopt_inlining], &out->inlining) || !find_bytes(walk, code.positions, &table))
    return false;
  out->source = source_at(walk, table, (int64_t)(pc - code.start) - 1);
  return out->source >= 0;
}

/* The function with that number among the literals, -1 being `outer`, with its words. 0: none. */
STACKD_HANDLER static uint64_t inlined_function(struct walk* walk, uint64_t literals, int32_t number, uint64_t outer,
                                                uint64_t* words) {
  uint64_t head[2], shared = outer;
  if (number >= 0) {
    if (!is_heap_object(literals) || !stackd_managed_read(walk->thread, literals - 1, head, sizeof(head))) return 0;
    if (!is_small_integer(head[1]) || (uint64_t)number >= head[1] >> 32) return 0;
    if (!read_word(walk, literals - 1 + 16 + 8 * (uint64_t)number, &shared)) return 0;
  } else if (number != -1) {
    return 0;
  }
  return read_heap_object(walk, &shared, words, STACKD_V8_SHARED_WORDS) == walk->layout->type.shared ? shared : 0;
}

STACKD_HANDLER static void write_frame(struct walk* walk, uint64_t fp, uint64_t shared, const uint64_t* words,
                                       int64_t position) {
  stackd_managed_frame(walk->writer, 0, fp, shared, position);
  write_function(walk, shared, words);
}

/* From the innermost function that was compiled into `outer` to the one that `outer` itself calls. With `write` false it
 * only tries whether all are there. `*source` becomes the place in `outer`. */
STACKD_HANDLER static bool walk_inlined(struct walk* walk, const struct optimized* code, uint64_t fp, uint64_t outer,
                                        uint64_t* shared_words, int64_t* source, bool write) {
  *source = code->source;
  for (uint32_t i = 0; i < MAX_INLINED; i++) {
    int64_t inlined = inlined_of(*source);
    if (inlined < 0) return true;
    uint64_t entry[2];
    uint32_t at = (uint32_t)inlined * sizeof(entry);
    if (at + sizeof(entry) > code->inlining.size_bytes ||
        !stackd_managed_read(walk->thread, code->inlining.address + at, entry, sizeof(entry))) {
      return false;
    }
    uint64_t shared = inlined_function(walk, code->literals, (int32_t)(uint32_t)entry[1], outer, shared_words);
    if (shared == 0) return false;
    int64_t place = place_of(*source);
    if (write) write_frame(walk, fp, shared, shared_words, place < 0 ? place : place * 2);
    *source = (int64_t)(entry[0] & 0xffffffffffffull);
  }
  return false;
}

/* Where a compiled function is in its script; NO_POSITION if that is not known. Writes those that were compiled into it and
 * stand before it. */
__attribute__((noinline)) STACKD_HANDLER static int64_t write_inlined(struct walk* walk, uint64_t fp, uint64_t function,
                                                                      uint64_t shared, const uint64_t* shared_words,
                                                                      uint64_t pc, bool is_call) {
  struct known_place* known = &walk->compiled;
  uint64_t words[STACKD_V8_SHARED_WORDS];
  int64_t source;
  if (known->function != function || known->pc != pc) {
    known->function = function;
    known->pc = pc;
    known->place = STACKD_V8_NO_POSITION;
    known->is_optimized = !find_in_baseline(walk, shared_words, is_call ? pc : pc + 1, &known->place) && is_call &&
                          find_optimized(walk, function, pc, &known->code) &&
                          walk_inlined(walk, &known->code, fp, shared, words, &source, false);
  }
  if (!known->is_optimized) return known->place;
  if (!walk_inlined(walk, &known->code, fp, shared, words, &source, true))
    return STACKD_V8_NO_POSITION; /* the time is up */
  return place_of(source);
}

/* --- Frames --- */

/* `is_call`: pc is where the frame is returned to, not where it was interrupted. */
STACKD_HANDLER static void write_js_frame(struct walk* walk, uint64_t fp, const uint64_t* words, uint64_t pc,
                                          bool is_call) {
  const struct stackd_v8_layout* layout = walk->layout;
  uint64_t shared_words[STACKD_V8_SHARED_WORDS];
  uint64_t function = words[FRAME_FUNCTION];
  uint64_t shared = shared_of(walk, &function);
  if (read_heap_object(walk, &shared, shared_words, STACKD_V8_SHARED_WORDS) != layout->type.shared) return;
  int64_t position = (int64_t)(pc << 1 | STACKD_V8_CODE);
  uint64_t bytecodes = words[FRAME_BYTECODES];
  if (is_small_integer(words[FRAME_BYTECODE_OFFSET]) && type_of(walk, &bytecodes) == layout->type.bytecode_array) {
    /* The word counts from the array's tagged address. */
    int64_t offset = (int64_t)(words[FRAME_BYTECODE_OFFSET] >> 32) + 1 - layout->bytecode_first;
    position = place_in_bytecodes(walk, bytecodes, offset);
    if (position != STACKD_V8_NO_POSITION) position *= 2;
  } else if (pc != 0) {
    int64_t place = write_inlined(walk, fp, function, shared, shared_words, pc, is_call);
    if (place != STACKD_V8_NO_POSITION) position = place * 2;
  }
  write_frame(walk, fp, shared, shared_words, position);
}

struct range {
  uint64_t start; /* the thread's stack from here */
  uint64_t entry; /* to the outermost frame of V8's */
};

STACKD_HANDLER static bool is_frame(const struct range* range, uint64_t fp) {
  return (fp & 7) == 0 && fp >= range->start && fp <= range->entry;
}

/* From frame `fp`, which executes at `pc`, to the outermost. With `write` false it only tries whether they hang together.
 */
STACKD_HANDLER static int32_t walk_links(struct walk* walk, const struct range* range, uint64_t fp, uint64_t pc,
                                         bool write) {
  uint32_t frames = 0;
  for (uint32_t hop = 0; hop < MAX_HOPS; hop++) {
    uint64_t words[FRAME_WORDS];
    if (!stackd_managed_read(walk->thread, fp - FRAME_BELOW_FP, words, sizeof(words))) return STACKD_WALK_UNREADABLE;
    uint64_t marker = words[FRAME_CONTEXT];
    uint64_t next = words[FRAME_FP];
    if (marker == MARKER_ENTRY || marker == MARKER_CONSTRUCT_ENTRY) {
      if (fp == range->entry) return STACKD_WALK_WHOLE;
      if (!read_word(walk, fp - ENTRY_NEXT_EXIT_BELOW_FP, &next)) return STACKD_WALK_UNREADABLE;
      if (write) stackd_managed_frame(walk->writer, STACKD_MANAGED_BOUNDARY, fp, 0, STACKD_V8_NO_POSITION);
    } else if (write && (marker & 1) != 0) {
      if (++frames > MAX_FRAMES) return STACKD_WALK_LIMIT;
      write_js_frame(walk, fp, words, pc, hop > 0);
    }
    if (!is_frame(range, next) || next <= fp) return STACKD_WALK_BAD_LAYOUT;
    pc = words[FRAME_PC];
    fp = next;
  }
  return STACKD_WALK_LIMIT;
}

/* The isolate that the thread is in; 0: none. */
STACKD_HANDLER static uint64_t isolate_of(const struct walk* walk) {
  const struct stackd_v8_layout* layout = walk->layout;
  uint64_t at = walk->thread->thread_self + (uint64_t)layout->isolate_from_thread;
  if (layout->isolate_key != 0) {
    uint32_t key;
    if (!stackd_managed_read(walk->thread, layout->isolate_key, &key, sizeof(key)) || key >= 32) return 0;
    at += 16ull * key;
  }
  uint64_t isolate, self;
  if (!read_word(walk, at, &isolate) || isolate == 0 || (isolate & 7) != 0) return 0;
  if (!read_word(walk, isolate + layout->isolate_self, &self) || self != isolate) return 0;
  return isolate;
}

struct isolate {
  uint64_t c_entry_fp, handler, js_entry_sp, fast_call_fp;
};

STACKD_HANDLER static bool read_isolate(const struct walk* walk, uint64_t address, struct isolate* isolate) {
  const struct stackd_v8_layout* layout = walk->layout;
  return read_word(walk, address + layout->c_entry_fp, &isolate->c_entry_fp) &&
         read_word(walk, address + layout->handler, &isolate->handler) &&
         read_word(walk, address + layout->js_entry_sp, &isolate->js_entry_sp) &&
         read_word(walk, address + layout->fast_call_fp, &isolate->fast_call_fp);
}

/* Where the walk begins. JavaScript that calls C++ leaves its frame in the isolate. JavaScript that runs has it in rbp, but
 * what it was interrupted in may not. Then V8's links do not lead from there to the entry, and nothing is told. */
STACKD_HANDLER static int32_t walk_isolate(struct walk* walk, const struct isolate* isolate) {
  const uint64_t* regs = walk->thread->regs;
  struct range range = {walk->thread->stack_start, isolate->js_entry_sp};
  if (isolate->js_entry_sp == 0) return STACKD_WALK_WHOLE;
  if (!is_frame(&range, range.entry) || range.entry >= walk->thread->stack_end) return STACKD_WALK_BAD_LAYOUT;
  uint64_t exit = isolate->c_entry_fp;
  bool has_exit = is_frame(&range, exit) && exit < isolate->handler;
  uint64_t fast = isolate->fast_call_fp;
  if (is_frame(&range, fast) && (!has_exit || fast < exit)) return walk_links(walk, &range, fast, 0, true);
  if (has_exit) return walk_links(walk, &range, exit, 0, true);
  uint64_t fp = regs[STACKD_REG_RBP];
  if (!is_frame(&range, fp)) return STACKD_WALK_BAD_LAYOUT;
  int32_t status = walk_links(walk, &range, fp, 0, false);
  if (status != STACKD_WALK_WHOLE && status != STACKD_WALK_LIMIT) return status;
  return walk_links(walk, &range, fp, regs[STACKD_REG_RIP], true);
}

void stackd_v8_walk(struct stackd_managed_writer* writer, const struct stackd_managed_thread* thread) {
  const struct stackd_v8_layout* layout = stackd_v8_found();
  if (layout == NULL) return;
  if (!layout->known) {
    if (thread->tid == (uint32_t)thread->pid) {
      stackd_managed_begin(writer, STACKD_RUNTIME_V8, 0, STACKD_WALK_UNKNOWN_VERSION, layout->version, 0);
    }
    return;
  }
  struct walk walk;
  walk.thread = thread;
  walk.layout = layout;
  walk.writer = writer;
  for (uint32_t i = 0; i < KNOWN_MAPS; i++) walk.known_maps[i] = 0;
  for (uint32_t i = 0; i < SEEN_FUNCTIONS; i++) walk.seen[i] = 0;
  walk.script.script = 0;
  walk.compiled.function = 0;
  uint64_t address = isolate_of(&walk);
  walk.isolate = address;
  struct isolate isolate;
  if (address == 0 || !read_isolate(&walk, address, &isolate)) {
    stackd_managed_say_if_blind(writer, thread, STACKD_RUNTIME_V8, layout->version);
    return;
  }
  stackd_managed_begin(writer, STACKD_RUNTIME_V8, 0, STACKD_WALK_WHOLE, layout->version, address);
  int32_t status = walk_isolate(&walk, &isolate);
  /* How it ended is known only now: a second beginning, without frames, says it. */
  if (status != STACKD_WALK_WHOLE) stackd_managed_begin(writer, STACKD_RUNTIME_V8, 0, status, layout->version, address);
}
