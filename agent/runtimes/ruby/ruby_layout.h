/* Where Ruby keeps what a walk over its frames needs. */
#ifndef STACKD_RUBY_LAYOUT_H_
#define STACKD_RUBY_LAYOUT_H_

#include <stdbool.h>
#include <stdint.h>

/* What a version of Ruby has at a place of its own. Structures are named as Ruby names them. */
struct stackd_ruby_layout {
  uint16_t major, minor;
  uint32_t frame_bytes;    /* sizeof(rb_control_frame_t) */
  uint32_t thread_context; /* of rb_thread_t: ec */
  uint32_t ractor_running; /* of rb_ractor_t: the rb_thread_t that has the global VM lock */
  uint32_t code_lines;     /* of rb_iseq_constant_body: insns_info.body, size and succ_index_table */
  uint32_t code_line_count;
  uint32_t code_line_index;
  uint32_t text_characters;     /* of RString: those that lie in it */
  bool text_length_is_in_flags; /* of such a string */
};

/* NULL if nothing is known of this version. */
const struct stackd_ruby_layout* stackd_ruby_layout(uint32_t major, uint32_t minor);

/* What all of these versions have at one place. */
enum {
  STACKD_RUBY_CONTEXT_STACK = 0, /* rb_execution_context_t */
  STACKD_RUBY_CONTEXT_STACK_WORDS = 8,
  STACKD_RUBY_CONTEXT_FRAME = 16,
  STACKD_RUBY_CONTEXT_TAG = 24,
  STACKD_RUBY_CONTEXT_THREAD = 48,
  STACKD_RUBY_CONTEXT_BYTES = 56,
  STACKD_RUBY_THREAD_RACTOR = 24, /* rb_thread_t */
  STACKD_RUBY_FRAME_PC = 0,       /* rb_control_frame_t */
  STACKD_RUBY_FRAME_CODE = 16,
  STACKD_RUBY_FRAME_FLAGS_POINTER = 32,
  STACKD_RUBY_FRAME_READ_BYTES = 40,
  STACKD_RUBY_OBJECT_FLAGS = 0, /* RBasic */
  STACKD_RUBY_CODE_BODY = 16,   /* rb_iseq_t */
  STACKD_RUBY_CODE_BYTES = 24,
  STACKD_RUBY_BODY_COUNT = 4, /* rb_iseq_constant_body */
  STACKD_RUBY_BODY_WORDS = 8,
  STACKD_RUBY_BODY_PATH = 64,
  STACKD_RUBY_BODY_LABEL = 80,
  STACKD_RUBY_BODY_BYTES = 152,
  STACKD_RUBY_LINE_BYTES = 12,  /* iseq_insn_info_entry, which begins with the line */
  STACKD_RUBY_TEXT_LENGTH = 16, /* RString */
  STACKD_RUBY_TEXT_POINTER = 24,
  STACKD_RUBY_TEXT_BYTES = 32,
  STACKD_RUBY_ARRAY_FIRST = 16, /* RArray that has its elements in it */
};

/* RBasic.flags */
#define STACKD_RUBY_TYPE_MASK 0x1fu
#define STACKD_RUBY_STRING 0x05u
#define STACKD_RUBY_ARRAY 0x07u
#define STACKD_RUBY_INTERNAL 0x1au         /* T_IMEMO */
#define STACKD_RUBY_INTERNAL_KIND_SHIFT 12 /* of four bits */
#define STACKD_RUBY_INTERNAL_CODE 7u       /* imemo_iseq */
#define STACKD_RUBY_STRING_IS_ELSEWHERE (1u << 13)
#define STACKD_RUBY_ARRAY_IS_EMBEDDED (1u << 13)
#define STACKD_RUBY_STRING_LENGTH_SHIFT 14 /* of five bits */

/* VM_FRAME_FLAG_FINISH: native code called the interpreter for this frame. */
#define STACKD_RUBY_CALLED_BY_NATIVE 0x20u

#endif /* STACKD_RUBY_LAYOUT_H_ */
