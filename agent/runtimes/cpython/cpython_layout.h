/* Where CPython keeps what a walk over its frames needs: offsets, as data, per version. */
#ifndef STACKD_CPYTHON_LAYOUT_H_
#define STACKD_CPYTHON_LAYOUT_H_

#include <stdbool.h>
#include <stdint.h>

/* How the frames of a thread hang together. */
enum stackd_cpython_frames {
  STACKD_CPYTHON_FRAME_OBJECTS, /* to 3.10: one call of the interpreter's function for each */
  STACKD_CPYTHON_ENTRY_FLAG,    /* 3.11: the outermost frame of such a call says so; a _PyCFrame lies on the C stack */
  STACKD_CPYTHON_ENTRY_FRAME,   /* from 3.12: behind the outermost comes one that lies on the C stack itself */
};

/* Layout of an x86-64 release build with a global interpreter lock. Structures are named as CPython names them. */
struct stackd_cpython_layout {
  uint16_t version;    /* PY_VERSION_HEX >> 16 */
  uint8_t frames;      /* stackd_cpython_frames */
  bool gil_in_runtime; /* else the interpreter has a pointer to it */
  uint32_t runtime_interpreters;
  uint32_t gil; /* in _PyRuntimeState or PyInterpreterState */
  uint32_t gil_holder;
  uint32_t gil_locked;
  uint32_t interpreter_next;
  uint32_t interpreter_threads;
  uint32_t thread_previous;
  uint32_t thread_next;
  uint32_t thread_interpreter;
  uint32_t thread_id;
  uint32_t thread_frame; /* the innermost frame; in 3.11 and 3.12 the innermost _PyCFrame */
  uint32_t cframe_frame; /* 0 and 0: there is no _PyCFrame */
  uint32_t cframe_previous;
  uint32_t frame_previous;
  uint32_t frame_code;
  uint32_t frame_position; /* f_lasti: an int; later versions: a pointer into the code */
  uint32_t frame_entry;    /* is_entry, owner: a byte */
  uint32_t code_name;
  uint32_t code_file;
  uint32_t code_first_line;
  uint32_t code_lines;
  uint32_t code_instructions;
  uint32_t text_length;
  uint32_t text_state;
  uint32_t text_ascii_bytes;   /* sizeof(PyASCIIObject): where the characters of an ASCII string begin */
  uint32_t text_compact_bytes; /* sizeof(PyCompactUnicodeObject): of another */
  uint32_t bytes_size;
  uint32_t bytes_data;
};

/* The part of each structure from its start that the handler copies to find these fields in. */
#define STACKD_CPYTHON_THREAD_BYTES 256u
#define STACKD_CPYTHON_FRAME_BYTES 128u
#define STACKD_CPYTHON_GIL_BYTES 16u /* from the first of its two fields */
#define STACKD_CPYTHON_CODE_BYTES 256u
#define STACKD_CPYTHON_TEXT_BYTES 80u
#define STACKD_CPYTHON_BYTES_BYTES 72u

/* NULL if nothing is known of this version. From 3.13 on the runtime tells its offsets itself: these are read from
 * `runtime`, checked, and written to `*own`. */
const struct stackd_cpython_layout* stackd_cpython_layout(uint32_t version_hex, uint64_t runtime,
                                                          struct stackd_cpython_layout* own);

#endif /* STACKD_CPYTHON_LAYOUT_H_ */
