#include "agent/runtimes/v8/v8_walk.h"

#define TABLE_CHUNK_BYTES 256u
#define SHARED_CODE 1 /* what runs the function: bytecodes, or baseline code */
#define MAX_POSITION_BYTES (32u << 10)
#define MAX_INLINED 32u

/* Bytes of a table, one after the other. */
struct bytes {
  const struct stackd_v8_walk* walk;
  uint64_t address;
  uint32_t left;
  uint32_t in_chunk;
  uint32_t at;
  unsigned char chunk[TABLE_CHUNK_BYTES];
};

STACKD_HANDLER static void begin_bytes(struct bytes* bytes, const struct stackd_v8_walk* walk,
                                       struct stackd_managed_bytes table) {
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
STACKD_HANDLER static int64_t script_offset_of(int64_t source) {
  return (source & 1) != 0 ? STACKD_V8_NO_POSITION : ((source >> 1) & 0x3fffffff) - 1;
}

STACKD_HANDLER static int64_t inlining_id_of(int64_t source) { return ((source >> 31) & 0xffff) - 1; }

/* The SourcePosition that a table has for an offset in the code; -1: none. The table is of differences: of offsets (below
 * zero, from -1 down, where the place is one of an expression), and of SourcePositions. */
STACKD_HANDLER static int64_t source_at(const struct stackd_v8_walk* walk, struct stackd_managed_bytes table,
                                        int64_t code_offset) {
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
STACKD_HANDLER static bool find_bytes(struct stackd_v8_walk* walk, uint64_t object, struct stackd_managed_bytes* bytes) {
  uint64_t head[2];
  int32_t type = stackd_v8_read_heap_object(walk, &object, head, 2);
  if (type != walk->layout->type.byte_array && type != walk->layout->type.trusted_byte_array) return false;
  if (!stackd_v8_is_small_integer(head[1]) || head[1] >> 32 > MAX_POSITION_BYTES) return false;
  bytes->address = object - 1 + 16;
  bytes->size_bytes = (uint32_t)(head[1] >> 32);
  return true;
}

__attribute__((noinline)) int64_t stackd_v8_script_offset(struct stackd_v8_walk* walk, uint64_t bytecodes, int64_t offset) {
  const struct stackd_v8_layout* layout = walk->layout;
  uint64_t words[STACKD_V8_BYTECODES_WORDS];
  if (stackd_v8_read_heap_object(walk, &bytecodes, words, STACKD_V8_BYTECODES_WORDS) != layout->type.bytecode_array) {
    return STACKD_V8_NO_POSITION;
  }
  /* Before the first error is thrown there may be none. */
  struct stackd_managed_bytes table;
  if (!find_bytes(walk, words[layout->bytecode_positions / 8], &table)) return STACKD_V8_NO_POSITION;
  int64_t source = source_at(walk, table, offset);
  return source < 0 ? STACKD_V8_NO_POSITION : script_offset_of(source);
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
STACKD_HANDLER static bool find_code(struct stackd_v8_walk* walk, uint64_t object, uint64_t pc, struct code* code) {
  const struct stackd_v8_layout* layout = walk->layout;
  uint64_t words[STACKD_V8_CODE_WORDS];
  if (stackd_v8_read_heap_object(walk, &object, words, STACKD_V8_CODE_WORDS) != layout->type.code) return false;
  code->start = layout->code_start != 0 ? words[layout->code_start / 8] : object - 1 + layout->code_bytes;
  code->size_bytes = (uint32_t)(words[layout->code_size / 8] >> (layout->code_size % 8 * 8));
  code->positions = words[layout->code_positions / 8];
  code->deopt = words[layout->code_deopt / 8];
  return pc > code->start && pc - code->start <= code->size_bytes;
}

/* The next bytecode's size, with its prefix; reads over it. 0: there is none. */
STACKD_HANDLER static uint32_t next_bytecode(const struct stackd_v8_walk* walk, struct bytes* bytes) {
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
STACKD_HANDLER static int64_t bytecode_offset_at(const struct stackd_v8_walk* walk, struct stackd_managed_bytes table,
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
__attribute__((noinline)) STACKD_HANDLER static bool find_in_baseline(struct stackd_v8_walk* walk,
                                                                      const uint64_t* shared_words, uint64_t pc_end,
                                                                      int64_t* script_offset) {
  struct code code;
  uint64_t words[2];
  struct stackd_managed_bytes table, bytecodes;
  if (!find_code(walk, shared_words[SHARED_CODE], pc_end, &code)) return false;
  if (stackd_v8_read_heap_object(walk, &code.deopt, words, 2) != walk->layout->type.bytecode_array) return false;
  if (!stackd_v8_is_small_integer(words[1]) || words[1] >> 32 > MAX_POSITION_BYTES) return false;
  bytecodes.address = code.deopt - 1 + walk->layout->bytecode_first;
  bytecodes.size_bytes = (uint32_t)(words[1] >> 32);
  if (!find_bytes(walk, code.positions, &table)) return false;
  int64_t offset = bytecode_offset_at(walk, table, bytecodes, pc_end - code.start);
  *script_offset = offset < 0 ? STACKD_V8_NO_POSITION : stackd_v8_script_offset(walk, code.deopt, offset);
  return true;
}

/* Optimized code keeps for each call where in which function that was, and which functions were compiled into it. Elsewhere
 * its positions are left out: a thread that was interrupted between two calls has none. */

/* The machine code that a function has now; 0: not known. */
STACKD_HANDLER static uint64_t code_of(const struct stackd_v8_walk* walk, uint64_t function) {
  const struct stackd_v8_layout* layout = walk->layout;
  uint64_t word, table, entry[2];
  if (!stackd_v8_read_word(walk, function - 1 + layout->function_code, &word)) return 0;
  if (layout->dispatch_table == 0) return word;
  /* An entry has 16 bytes; the low 8 bits of what is in the function are none of its number. */
  if (!stackd_v8_read_word(walk, walk->isolate + layout->dispatch_table, &table)) return 0;
  uint64_t at = table + ((word & 0xffffffffu) >> 8) * sizeof(entry);
  if (!stackd_managed_read(walk->thread, at, entry, sizeof(entry))) return 0;
  return entry[1] >> 16 | 1;
}

STACKD_HANDLER static bool is_fixed_array(const struct stackd_v8_walk* walk, int32_t type) {
  const uint16_t* types = walk->layout->type.fixed_arrays;
  return type > 0 && (type == types[0] || type == types[1] || type == types[2]);
}

/* What the code of `function` says of a call that returns to `pc`. False if it is not that code's, or other code than
 * optimized. */
__attribute__((noinline)) STACKD_HANDLER static bool find_optimized(struct stackd_v8_walk* walk, uint64_t function,
                                                                    uint64_t pc, struct stackd_v8_optimized* out) {
  const struct stackd_v8_layout* layout = walk->layout;
  uint64_t words[STACKD_V8_DEOPT_WORDS];
  struct code code;
  if (!find_code(walk, code_of(walk, function), pc, &code)) return false;
  if (!is_fixed_array(walk, stackd_v8_read_heap_object(walk, &code.deopt, words, STACKD_V8_DEOPT_WORDS))) return false;
  const uint64_t* entries = words + 2;
  uint64_t exits = entries[layout->deopt_inlining + 1];
  bool has_entries = stackd_v8_is_small_integer(words[1]) && words[1] >> 32 > layout->deopt_inlining + 1 &&
                     stackd_v8_is_small_integer(exits);
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
STACKD_HANDLER static uint64_t inlined_function(struct stackd_v8_walk* walk, uint64_t literals, int32_t number,
                                                uint64_t outer, uint64_t* words) {
  uint64_t head[2], shared = outer;
  if (number >= 0) {
    if (!stackd_v8_is_heap_object(literals) || !stackd_managed_read(walk->thread, literals - 1, head, sizeof(head)))
      return 0;
    if (!stackd_v8_is_small_integer(head[1]) || (uint64_t)number >= head[1] >> 32) return 0;
    if (!stackd_v8_read_word(walk, literals - 1 + 16 + 8 * (uint64_t)number, &shared)) return 0;
  } else if (number != -1) {
    return 0;
  }
  return stackd_v8_read_heap_object(walk, &shared, words, STACKD_V8_SHARED_WORDS) == walk->layout->type.shared ? shared : 0;
}

/* From the innermost function that was compiled into `outer` to the one that `outer` itself calls. With `write` false it
 * only tries whether all are there. `*source` becomes the place in `outer`. */
STACKD_HANDLER static bool walk_inlined(struct stackd_v8_walk* walk, const struct stackd_v8_optimized* code, uint64_t fp,
                                        uint64_t outer, uint64_t* shared_words, int64_t* source, bool write) {
  *source = code->source;
  for (uint32_t i = 0; i < MAX_INLINED; i++) {
    int64_t id = inlining_id_of(*source);
    if (id < 0) return true;
    uint64_t entry[2];
    uint32_t at = (uint32_t)id * sizeof(entry);
    if (at + sizeof(entry) > code->inlining.size_bytes ||
        !stackd_managed_read(walk->thread, code->inlining.address + at, entry, sizeof(entry))) {
      return false;
    }
    uint64_t shared = inlined_function(walk, code->literals, (int32_t)(uint32_t)entry[1], outer, shared_words);
    if (shared == 0) return false;
    int64_t script_offset = script_offset_of(*source);
    if (write) stackd_v8_write_frame(walk, fp, shared, shared_words, script_offset < 0 ? script_offset : script_offset * 2);
    *source = (int64_t)(entry[0] & 0xffffffffffffull);
  }
  return false;
}

int64_t stackd_v8_write_inlined(struct stackd_v8_walk* walk, uint64_t fp, uint64_t function, uint64_t shared,
                                const uint64_t* shared_words, uint64_t pc, bool is_call) {
  struct stackd_v8_known_pc* known = &walk->compiled;
  uint64_t words[STACKD_V8_SHARED_WORDS];
  int64_t source;
  if (known->function != function || known->pc != pc) {
    known->function = function;
    known->pc = pc;
    known->script_offset = STACKD_V8_NO_POSITION;
    known->is_optimized = !find_in_baseline(walk, shared_words, is_call ? pc : pc + 1, &known->script_offset) && is_call &&
                          find_optimized(walk, function, pc, &known->code) &&
                          walk_inlined(walk, &known->code, fp, shared, words, &source, false);
  }
  if (!known->is_optimized) return known->script_offset;
  if (!walk_inlined(walk, &known->code, fp, shared, words, &source, true))
    return STACKD_V8_NO_POSITION; /* the time is up */
  return script_offset_of(source);
}
