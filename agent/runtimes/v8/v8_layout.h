/* Where V8 keeps what the walk needs. The runtime itself tells most of it, in the `v8dbg_*` constants that node exports for
 * debuggers. The rest is a table by version in v8_find.c. */
#ifndef STACKD_V8_LAYOUT_H_
#define STACKD_V8_LAYOUT_H_

#include <stdbool.h>
#include <stdint.h>

#include "agent/runtimes/v8/v8_bytecodes.h"

/* So many words of these are read at once: the offsets below lie in them. */
#define STACKD_V8_FUNCTION_WORDS 5
#define STACKD_V8_SHARED_WORDS 8
#define STACKD_V8_SCRIPT_WORDS 4
#define STACKD_V8_BYTECODES_WORDS 5
#define STACKD_V8_CODE_WORDS 8
#define STACKD_V8_DEOPT_WORDS 12

struct stackd_v8_types {
  uint16_t first_function;
  uint16_t last_function;
  uint16_t shared;
  uint16_t script;
  uint16_t debug_info;
  uint16_t scope_info;
  uint16_t bytecode_array;
  uint16_t byte_array;
  uint16_t trusted_byte_array; /* 0: this version has none */
  uint16_t code;
  uint16_t fixed_arrays[3]; /* of which one holds what an optimized function is made of; 0: none */
  uint16_t first_nonstring;
};

struct stackd_v8_layout {
  uint64_t version; /* major << 48 | minor << 32 | build << 16 | patch */
  bool known;       /* false: of this version nothing below is known */

  /* The isolate that a thread is in: the word at this distance from its fs base. With `isolate_key`, which is the address
   * of a key, glibc's array of thread-specific data is there. */
  int64_t isolate_from_thread;
  uint64_t isolate_key; /* 0: not so */

  /* In the isolate. */
  uint32_t isolate_self; /* a pointer to itself: the proof that it is one */
  uint32_t c_entry_fp;   /* frame by which JavaScript last called C++; 0 where it runs itself */
  uint32_t handler;      /* innermost exception handler; above c_entry_fp where that counts */
  uint32_t js_entry_sp;  /* frame of the outermost entry; 0: not in JavaScript */
  uint32_t fast_call_fp; /* frame that calls a C function directly, or 0 */

  /* In heap objects, from their beginning. */
  uint32_t map_type;
  uint32_t function_shared;
  uint32_t shared_name;
  uint32_t shared_script;
  uint32_t script_name;
  uint32_t script_source;
  uint32_t bytecode_positions;
  uint32_t bytecode_first; /* its first bytecode */
  uint32_t scope_locals;   /* Smi: how many names of variables come first */
  uint32_t scope_first;    /* the first of these */

  /* In machine code that was optimized, and what leads there from its function. */
  uint32_t function_code;
  uint32_t dispatch_table; /* in the isolate; 0: in the function is the code itself, else its place in that table */
  uint32_t code_deopt;
  uint32_t code_positions;
  uint32_t code_start; /* address of its first instruction; 0: they follow */
  uint32_t code_size;  /* int32_t */
  uint32_t code_bytes; /* of what stands before them, where they follow */
  uint32_t deopt_literals;
  uint32_t deopt_inlining; /* the next is where deoptimization exits begin */

  struct stackd_v8_types type;
  struct stackd_v8_bytecodes bytecodes;
};

#endif /* STACKD_V8_LAYOUT_H_ */
