/* What entries of STACKD_RUNTIME_V8 mean, beyond ring_abi.h: between agent/runtimes/v8/v8.c and daemon/managed/v8. */
#ifndef STACKD_V8_TRACE_H_
#define STACKD_V8_TRACE_H_

#include <stdint.h>

/* stackd_managed_frame.anchor: the frame pointer. A frame with the anchor of the next one was compiled into that.
 *
 * stackd_managed_frame.key: the SharedFunctionInfo, tagged, as it was at that moment.
 *
 * stackd_managed_frame.position: STACKD_V8_NO_POSITION; a place in the script, in characters, times 2; or an address in
 * machine code made for this function, times 2, plus 1. */
#define STACKD_V8_NO_POSITION (-1ll)
#define STACKD_V8_CODE 1u

/* stackd_managed_symbol.table_format: how its function is written, and times 4 how its file is. */
enum stackd_v8_text { STACKD_V8_UTF8 = 0, STACKD_V8_LATIN1 = 1, STACKD_V8_UTF16 = 2 };

/* stackd_managed_symbol.table, if it is not empty: the script, as it was when the thread was interrupted. */
struct stackd_v8_script {
  uint64_t script;      /* tagged, as the next two */
  uint64_t source;      /* its text, a String that is one piece */
  uint64_t source_map;  /* of that String */
  uint64_t chars;       /* where the text's characters are; 0: not known */
  uint32_t chars_count; /* of 1 byte, or 2 with `two_bytes` */
  uint32_t two_bytes;
  int32_t line_offset;     /* of its first line; 0 is usual */
  int32_t source_bytes_at; /* offset of `source` in a Script */
};

#endif /* STACKD_V8_TRACE_H_ */
