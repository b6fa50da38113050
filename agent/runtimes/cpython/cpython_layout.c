#include "agent/runtimes/cpython/cpython_layout.h"

#include <stddef.h>
#include <string.h>

#include "agent/sys/syscalls.h"
#include "agent/sys/target.h"

/* offsetof() in the headers of each release, with Py_BUILD_CORE: 3.8.18, 3.9.18, 3.10.13, 3.11.7, 3.12.1; those of 3.13 and
 * 3.14 tell themselves (below). tests/languages/python/layout.c prints them, and python_test.LayoutTest compares with the
 * headers that are installed. */
static const struct stackd_cpython_layout kLayouts[] = {
    {
        .version = 0x308,
        .frames = STACKD_CPYTHON_FRAME_OBJECTS,
        .gil_in_runtime = true,
        .runtime_interpreters = 32,
        .gil = 1152,
        .gil_holder = 8,
        .gil_locked = 16,
        .interpreter_next = 0,
        .interpreter_threads = 8,
        .thread_previous = 0,
        .thread_next = 8,
        .thread_interpreter = 16,
        .thread_id = 176,
        .thread_frame = 24,
        .frame_previous = 24,
        .frame_code = 32,
        .frame_position = 104,
        .code_name = 112,
        .code_file = 104,
        .code_first_line = 40,
        .code_lines = 120,
        .text_length = 16,
        .text_state = 32,
        .text_ascii_bytes = 48,
        .text_compact_bytes = 72,
        .bytes_size = 16,
        .bytes_data = 32,
    },
    {
        .version = 0x309,
        .frames = STACKD_CPYTHON_FRAME_OBJECTS,
        .gil_in_runtime = true,
        .runtime_interpreters = 32,
        .gil = 352,
        .gil_holder = 8,
        .gil_locked = 16,
        .interpreter_next = 0,
        .interpreter_threads = 8,
        .thread_previous = 0,
        .thread_next = 8,
        .thread_interpreter = 16,
        .thread_id = 176,
        .thread_frame = 24,
        .frame_previous = 24,
        .frame_code = 32,
        .frame_position = 104,
        .code_name = 112,
        .code_file = 104,
        .code_first_line = 40,
        .code_lines = 120,
        .text_length = 16,
        .text_state = 32,
        .text_ascii_bytes = 48,
        .text_compact_bytes = 72,
        .bytes_size = 16,
        .bytes_data = 32,
    },
    {
        .version = 0x30a,
        .frames = STACKD_CPYTHON_FRAME_OBJECTS,
        .gil_in_runtime = true,
        .runtime_interpreters = 32,
        .gil = 352,
        .gil_holder = 8,
        .gil_locked = 16,
        .interpreter_next = 0,
        .interpreter_threads = 8,
        .thread_previous = 0,
        .thread_next = 8,
        .thread_interpreter = 16,
        .thread_id = 176,
        .thread_frame = 24,
        .frame_previous = 24,
        .frame_code = 32,
        .frame_position = 96,
        .code_name = 112,
        .code_file = 104,
        .code_first_line = 40,
        .code_lines = 120,
        .text_length = 16,
        .text_state = 32,
        .text_ascii_bytes = 48,
        .text_compact_bytes = 72,
        .bytes_size = 16,
        .bytes_data = 32,
    },
    {
        .version = 0x30b,
        .frames = STACKD_CPYTHON_ENTRY_FLAG,
        .gil_in_runtime = true,
        .runtime_interpreters = 40,
        .gil = 360,
        .gil_holder = 8,
        .gil_locked = 16,
        .interpreter_next = 0,
        .interpreter_threads = 16,
        .thread_previous = 0,
        .thread_next = 8,
        .thread_interpreter = 16,
        .thread_id = 152,
        .thread_frame = 56,
        .cframe_frame = 8,
        .cframe_previous = 16,
        .frame_previous = 48,
        .frame_code = 32,
        .frame_position = 56,
        .frame_entry = 68,
        .code_name = 128,
        .code_file = 112,
        .code_first_line = 72,
        .code_lines = 136,
        .code_instructions = 184,
        .text_length = 16,
        .text_state = 32,
        .text_ascii_bytes = 48,
        .text_compact_bytes = 72,
        .bytes_size = 16,
        .bytes_data = 32,
    },
    {
        .version = 0x30c,
        .frames = STACKD_CPYTHON_ENTRY_FRAME,
        .gil_in_runtime = false,
        .runtime_interpreters = 40,
        .gil = 384,
        .gil_holder = 8,
        .gil_locked = 16,
        .interpreter_next = 0,
        .interpreter_threads = 72,
        .thread_previous = 0,
        .thread_next = 8,
        .thread_interpreter = 16,
        .thread_id = 136,
        .thread_frame = 56,
        .cframe_frame = 0,
        .cframe_previous = 8,
        .frame_previous = 8,
        .frame_code = 0,
        .frame_position = 56,
        .frame_entry = 70,
        .code_name = 128,
        .code_file = 112,
        .code_first_line = 68,
        .code_lines = 136,
        .code_instructions = 192,
        .text_length = 16,
        .text_state = 32,
        .text_ascii_bytes = 40,
        .text_compact_bytes = 56,
        .bytes_size = 16,
        .bytes_data = 32,
    },
};

/* From 3.13 on _PyRuntime begins with a _Py_DebugOffsets, whose own layout changes with the version: where each value is in
 * it, in words. Of 3.13 from Include/internal/pycore_runtime.h of 3.13.0, of 3.14 from pycore_debug_offsets.h of 3.14.10.
 */
struct places {
  uint16_t version;
  uint16_t runtime_interpreters, interpreter_next, interpreter_threads, gil_pointer, gil, gil_locked, gil_holder;
  uint16_t thread_previous, thread_next, thread_interpreter, thread_frame, thread_id;
  uint16_t frame_previous, frame_code, frame_position, frame_entry;
  uint16_t code_file, code_name, code_lines, code_first_line, code_instructions;
  uint16_t bytes_size, bytes_data, text_state, text_length, text_ascii_bytes;
};

static const struct places kPlaces[] = {
    {0x30d, 5, 8, 9, 14, 15, 17, 18, 20, 21, 22, 23, 24, 29, 30, 31, 33, 35, 37, 38, 39, 43, 65, 66, 68, 69, 70},
    {0x30e, 5, 8, 9, 15, 16, 18, 19, 23, 24, 25, 26, 27, 32, 33, 34, 36, 40, 42, 43, 44, 48, 75, 76, 78, 79, 80},
};

#define OFFSET_WORDS 96
#define COOKIE 0x7970677562656478ull /* "xdebugpy" */
#define VERSION_WORD 1
#define FREE_THREADED_WORD 2

/* PyInterpreterState has some hundred KiB, _PyRuntimeState a few more. */
#define MAX_OFFSET (4u << 20)

static bool take(const uint64_t* words, uint16_t place, uint32_t limit, uint32_t* out) {
  *out = (uint32_t)words[place];
  return words[place] <= limit;
}

/* Each within the part of its structure that the handler copies. */
static bool take_all(const uint64_t* words, const struct places* places, struct stackd_cpython_layout* out) {
  uint32_t gil;
  bool good = take(words, places->runtime_interpreters, MAX_OFFSET, &out->runtime_interpreters) &&
              take(words, places->interpreter_next, MAX_OFFSET, &out->interpreter_next) &&
              take(words, places->interpreter_threads, MAX_OFFSET, &out->interpreter_threads) &&
              take(words, places->gil_pointer, MAX_OFFSET, &out->gil) && take(words, places->gil, MAX_OFFSET, &gil) &&
              take(words, places->gil_locked, MAX_OFFSET, &out->gil_locked) &&
              take(words, places->gil_holder, MAX_OFFSET, &out->gil_holder) &&
              take(words, places->thread_previous, STACKD_CPYTHON_THREAD_BYTES - 8, &out->thread_previous) &&
              take(words, places->thread_next, STACKD_CPYTHON_THREAD_BYTES - 8, &out->thread_next) &&
              take(words, places->thread_interpreter, STACKD_CPYTHON_THREAD_BYTES - 8, &out->thread_interpreter) &&
              take(words, places->thread_frame, STACKD_CPYTHON_THREAD_BYTES - 8, &out->thread_frame) &&
              take(words, places->thread_id, STACKD_CPYTHON_THREAD_BYTES - 8, &out->thread_id) &&
              take(words, places->frame_previous, STACKD_CPYTHON_FRAME_BYTES - 8, &out->frame_previous) &&
              take(words, places->frame_code, STACKD_CPYTHON_FRAME_BYTES - 8, &out->frame_code) &&
              take(words, places->frame_position, STACKD_CPYTHON_FRAME_BYTES - 8, &out->frame_position) &&
              take(words, places->frame_entry, STACKD_CPYTHON_FRAME_BYTES - 8, &out->frame_entry) &&
              take(words, places->code_file, STACKD_CPYTHON_CODE_BYTES - 8, &out->code_file) &&
              take(words, places->code_name, STACKD_CPYTHON_CODE_BYTES - 8, &out->code_name) &&
              take(words, places->code_lines, STACKD_CPYTHON_CODE_BYTES - 8, &out->code_lines) &&
              take(words, places->code_first_line, STACKD_CPYTHON_CODE_BYTES - 8, &out->code_first_line) &&
              take(words, places->code_instructions, STACKD_CPYTHON_CODE_BYTES, &out->code_instructions) &&
              take(words, places->bytes_size, STACKD_CPYTHON_BYTES_BYTES - 8, &out->bytes_size) &&
              take(words, places->bytes_data, 64, &out->bytes_data) &&
              take(words, places->text_state, STACKD_CPYTHON_TEXT_BYTES - 8, &out->text_state) &&
              take(words, places->text_length, STACKD_CPYTHON_TEXT_BYTES - 8, &out->text_length) &&
              take(words, places->text_ascii_bytes, STACKD_CPYTHON_TEXT_BYTES, &out->text_ascii_bytes);
  /* Behind the type, which is copied with it. */
  if (!good || out->bytes_size < 16 || out->code_instructions < 16) return false;
  if (out->gil_locked < gil || out->gil_holder < gil) return false;
  out->gil_locked -= gil;
  out->gil_holder -= gil;
  if (out->gil_locked + 4 > out->gil_holder + STACKD_CPYTHON_GIL_BYTES ||
      out->gil_holder + 8 > out->gil_locked + STACKD_CPYTHON_GIL_BYTES) {
    return false;
  }
  /* PyCompactUnicodeObject adds the length and the address of a copy in UTF-8. */
  out->text_compact_bytes = out->text_ascii_bytes + 16;
  return true;
}

const struct stackd_cpython_layout* stackd_cpython_layout(uint32_t version_hex, uint64_t runtime,
                                                          struct stackd_cpython_layout* own) {
  uint32_t version = version_hex >> 16;
  for (size_t i = 0; i < sizeof(kLayouts) / sizeof(kLayouts[0]); i++) {
    if (kLayouts[i].version == version) return &kLayouts[i];
  }
  for (size_t i = 0; i < sizeof(kPlaces) / sizeof(kPlaces[0]); i++) {
    uint64_t words[OFFSET_WORDS];
    if (kPlaces[i].version != version) continue;
    if (stackd_read_memory(stackd_target_pid(), runtime, words, sizeof(words)) != (long)sizeof(words)) return NULL;
    if (words[0] != COOKIE || words[VERSION_WORD] != version_hex || words[FREE_THREADED_WORD] != 0) return NULL;
    memset(own, 0, sizeof(*own));
    own->version = (uint16_t)version;
    own->frames = STACKD_CPYTHON_ENTRY_FRAME;
    return take_all(words, &kPlaces[i], own) ? own : NULL;
  }
  return NULL;
}
