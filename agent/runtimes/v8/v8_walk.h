/* What the parts of V8's walk share: its state, and how each part reads the objects of V8's heap. All of it is
 * SIGNAL-SAFE. */
#ifndef STACKD_V8_WALK_H_
#define STACKD_V8_WALK_H_

#include <stdbool.h>
#include <stdint.h>

#include "agent/runtimes/v8/v8_layout.h"
#include "agent/runtimes/walker.h"
#include "stackd/v8_trace.h"

#define STACKD_V8_KNOWN_MAPS 16u
#define STACKD_V8_SEEN_FUNCTIONS 16u

/* A text, where it lies. */
struct stackd_v8_name {
  struct stackd_managed_bytes bytes;
  uint32_t written; /* stackd_v8_text */
};

/* A script, with what stackd_managed_symbol says of it. */
struct stackd_v8_known_script {
  uint64_t script; /* 0: none */
  struct stackd_v8_script facts;
  struct stackd_v8_name file;
};

/* One call in optimized code. */
struct stackd_v8_optimized {
  int64_t source;
  struct stackd_managed_bytes inlining; /* an entry a function that was inlined: where, and which, each a word */
  uint64_t literals;                    /* an array, tagged, in which are those */
};

/* What is known of a function at one address of its compiled code. */
struct stackd_v8_known_pc {
  uint64_t function, pc; /* 0: none */
  bool is_optimized;     /* and all that its code says of it is there; else: */
  int64_t script_offset;
  struct stackd_v8_optimized code;
};

struct stackd_v8_walk {
  const struct stackd_managed_thread* thread;
  const struct stackd_v8_layout* layout;
  struct stackd_managed_writer* writer;
  uint64_t isolate;
  uint64_t known_maps[STACKD_V8_KNOWN_MAPS];
  uint16_t known_types[STACKD_V8_KNOWN_MAPS];
  uint64_t seen[STACKD_V8_SEEN_FUNCTIONS];
  struct stackd_v8_known_script script; /* functions of one script often stand together */
  struct stackd_v8_known_pc compiled;   /* recursion */
};

/* --- Objects of the heap (v8_heap.c) --- */

STACKD_HANDLER_INLINE bool stackd_v8_read_word(const struct stackd_v8_walk* walk, uint64_t address, uint64_t* word) {
  return stackd_managed_read(walk->thread, address, word, sizeof(*word));
}

STACKD_HANDLER_INLINE bool stackd_v8_is_heap_object(uint64_t value) { return (value & 3) == 1 && value > 4096; }

STACKD_HANDLER_INLINE bool stackd_v8_is_small_integer(uint64_t value) { return (value & 0xffffffffu) == 0; }

/* Copies the first `count` words of a heap object and tells its type; -1 if there is no such object. One that the garbage
 * collector has just moved has its new address in place of a map; `*object` is set to that. */
int32_t stackd_v8_read_heap_object(struct stackd_v8_walk* walk, uint64_t* object, uint64_t* words,
                                   uint32_t count) STACKD_HANDLER;

int32_t stackd_v8_type_of(struct stackd_v8_walk* walk, uint64_t* object) STACKD_HANDLER;

/* --- Strings (v8_strings.c) --- */

/* A String that is one piece: where its characters are. */
struct stackd_v8_piece {
  uint64_t chars;
  uint32_t count;
  bool one_byte;
};

/* UTF-8 into a buffer. */
struct stackd_v8_text_buffer {
  unsigned char* bytes;
  uint32_t capacity;
  uint32_t size_bytes;
  uint32_t first_half; /* of a pair of surrogates; 0: none */
};

/* Finds where the String `object`, of this type and with these words, has its characters. False if it is not one piece. */
bool stackd_v8_find_piece(uint64_t object, const uint64_t* words, int32_t type,
                          struct stackd_v8_piece* piece) STACKD_HANDLER;

/* Finds a String's characters, or writes them to `text`, which may be NULL, if they are in pieces. False if it is no
 * String, is empty, or could not be read. */
bool stackd_v8_find_name(struct stackd_v8_walk* walk, uint64_t object, struct stackd_v8_text_buffer* text,
                         struct stackd_v8_name* name) STACKD_HANDLER;

/* Finds the name of a function by its SharedFunctionInfo, or leaves `name` as it is. */
void stackd_v8_find_function_name(struct stackd_v8_walk* walk, const uint64_t* shared, struct stackd_v8_text_buffer* text,
                                  struct stackd_v8_name* name) STACKD_HANDLER;

/* --- Frames and symbols (v8_symbols.c) --- */

/* Writes a frame; besides, once a thread, its function's name and file. `words` are those of the SharedFunctionInfo
 * `shared`. */
void stackd_v8_write_frame(struct stackd_v8_walk* walk, uint64_t fp, uint64_t shared, const uint64_t* words,
                           int64_t position) STACKD_HANDLER;

/* --- Positions (v8_positions.c) --- */

/* Tells where a function is in its script, by an offset in its bytecodes. */
int64_t stackd_v8_script_offset(struct stackd_v8_walk* walk, uint64_t bytecodes, int64_t offset) STACKD_HANDLER;

/* Tells where a compiled function is in its script; NO_POSITION if that is not known. Writes the functions that were
 * compiled into it and stand before it. `is_call`: pc is where the frame is returned to. */
int64_t stackd_v8_write_inlined(struct stackd_v8_walk* walk, uint64_t fp, uint64_t function, uint64_t shared,
                                const uint64_t* shared_words, uint64_t pc, bool is_call) STACKD_HANDLER;

#endif /* STACKD_V8_WALK_H_ */
