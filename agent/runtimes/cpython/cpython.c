#include "agent/runtimes/cpython/cpython.h"

#include <stddef.h>

#include "agent/runtimes/cpython/cpython_layout.h"
#include "agent/sys/large.h"
#include "agent/sys/target.h"

#define MAX_INTERPRETERS 64
#define MAX_THREADS 16384
#define MAX_FRAMES 3072
/* What a walk leaves free for the entry that says how it ended. */
#define LAST_WORDS 64
#define SEEN 32
#define HINTS 4096
/* What is read of frames at once, some of them, where there are no copies of pages. */
#define WINDOW_BYTES 512u
#define PAGE_BYTES 4096u
/* From then on each code object has a number of its own (co_version). Before, one that took the place of another may have
 * all its parts at the same places too. Only reading them tells the two apart. */
#define FIRST_WITH_NUMBERS 0x30cu

struct runtime {
  const struct stackd_cpython_layout* layout; /* NULL: an unknown version */
  uint32_t version_hex;
  uint64_t address; /* of _PyRuntime */
  uint64_t code_type;
  uint64_t text_type;
  uint64_t bytes_type;
  struct stackd_loaded_symbol interpreter_function;
};

/* The one that was found, or NULL. */
static const struct runtime* published;

/* Where the state of a thread was last seen, by a hash of its pthread_t. Without hints each thread of a dump would go
 * through the list of all. A hint is believed only when the state that it leads to is that thread's and in the list. */
static STACKD_LARGE uint64_t hints[HINTS];

/* --- Finding (not in a handler) --- */

/* From 3.11 on Py_Version has it. Before, only a function tells, and nothing of the runtime is called. Not here either:
 * another thread may be loading it at this moment. But the public functions that each version added are known; the last two
 * parts of the number stay 0. */
static uint32_t version_of(const struct stackd_loaded_object* object) {
  static const struct {
    uint32_t version_hex;
    const char* function;
  } kAdded[] = {
      {0x030a0000, "PyModule_AddObjectRef"},
      {0x03090000, "PyModule_AddType"},
      {0x03080000, "PyConfig_InitPythonConfig"},
  };
  struct stackd_loaded_symbol version = stackd_loaded_symbol(object, "Py_Version");
  unsigned long version_hex = 0;
  if (version.address != 0) {
    stackd_read_memory(stackd_target_pid(), version.address, &version_hex, sizeof(version_hex));
    return (uint32_t)version_hex;
  }
  for (size_t i = 0; i < sizeof(kAdded) / sizeof(kAdded[0]); i++) {
    if (stackd_loaded_symbol(object, kAdded[i].function).address != 0) return kAdded[i].version_hex;
  }
  return 0;
}

void stackd_cpython_find(const struct stackd_loaded_object* object) {
  /* A handler may be reading the one that was published. */
  static struct runtime finds[2];
  static struct stackd_cpython_layout own_layout;
  const struct runtime* before = __atomic_load_n(&published, __ATOMIC_RELAXED);
  if (before != NULL && before->layout != NULL) return;
  struct runtime* found = before == &finds[0] ? &finds[1] : &finds[0];
  found->address = stackd_loaded_symbol(object, "_PyRuntime").address;
  if (found->address == 0) return;
  found->code_type = stackd_loaded_symbol(object, "PyCode_Type").address;
  found->text_type = stackd_loaded_symbol(object, "PyUnicode_Type").address;
  found->bytes_type = stackd_loaded_symbol(object, "PyBytes_Type").address;
  found->interpreter_function = stackd_loaded_symbol(object, "_PyEval_EvalFrameDefault");
  found->version_hex = version_of(object);
  bool has_types = found->code_type != 0 && found->text_type != 0 && found->bytes_type != 0;
  found->layout = has_types ? stackd_cpython_layout(found->version_hex, found->address, &own_layout) : NULL;
  if (found->layout == NULL) {
    stackd_managed_look_again();
  } else {
    stackd_page_copies_prepare();
    if (found->layout->version >= FIRST_WITH_NUMBERS) stackd_symbol_copies_prepare();
  }
  __atomic_store_n(&published, found, __ATOMIC_RELEASE);
  stackd_managed_has_found(/*needs_memory=*/true);
}

/* --- Reading --- */

STACKD_HANDLER static uint64_t word_at(const void* block, uint32_t offset) {
  return *(const uint64_t*)((const char*)block + offset);
}

STACKD_HANDLER static int32_t int_at(const void* block, uint32_t offset) {
  return *(const int32_t*)((const char*)block + offset);
}

STACKD_HANDLER static bool read_word(const struct stackd_managed_thread* thread, uint64_t address, uint64_t* out) {
  return stackd_managed_read(thread, address, out, sizeof(*out));
}

/* --- The thread's state --- */

STACKD_HANDLER static uint64_t* hint_of(uint64_t thread_self) {
  return &hints[(thread_self * 0x9e3779b97f4a7c15u >> 32) % HINTS];
}

struct thread_state {
  uint64_t address;
  uint64_t previous;
  uint64_t next;
  uint64_t interpreter;
  uint64_t thread_self;
  uint64_t frame;
};

STACKD_HANDLER static bool read_state(const struct runtime* runtime, const struct stackd_managed_thread* thread,
                                      uint64_t address, struct thread_state* out) {
  const struct stackd_cpython_layout* layout = runtime->layout;
  uint64_t block[STACKD_CPYTHON_THREAD_BYTES / 8];
  if (address == 0 || !stackd_managed_read(thread, address, block, sizeof(block))) return false;
  out->address = address;
  out->previous = word_at(block, layout->thread_previous);
  out->next = word_at(block, layout->thread_next);
  out->interpreter = word_at(block, layout->thread_interpreter);
  out->thread_self = word_at(block, layout->thread_id);
  out->frame = word_at(block, layout->thread_frame);
  return true;
}

/* A state that was taken out of the list, as that of a thread which ends, says what it said before. */
STACKD_HANDLER static bool is_listed(const struct runtime* runtime, const struct stackd_managed_thread* thread,
                                     const struct thread_state* state) {
  const struct stackd_cpython_layout* layout = runtime->layout;
  uint64_t link =
      state->previous != 0 ? state->previous + layout->thread_next : state->interpreter + layout->interpreter_threads;
  uint64_t value;
  return read_word(thread, link, &value) && value == state->address;
}

STACKD_HANDLER static bool find_in_list(const struct runtime* runtime, const struct stackd_managed_thread* thread,
                                        struct thread_state* out) {
  const struct stackd_cpython_layout* layout = runtime->layout;
  uint64_t interpreter;
  if (!read_word(thread, runtime->address + layout->runtime_interpreters, &interpreter)) return false;
  int threads = 0;
  for (int i = 0; i < MAX_INTERPRETERS && interpreter != 0; i++) {
    uint64_t state;
    if (!read_word(thread, interpreter + layout->interpreter_threads, &state)) return false;
    for (; state != 0 && threads < MAX_THREADS; threads++) {
      if (!read_state(runtime, thread, state, out)) break;
      __atomic_store_n(hint_of(out->thread_self), state, __ATOMIC_RELAXED);
      if (out->thread_self == thread->thread_self) return true;
      state = out->next;
    }
    if (!read_word(thread, interpreter + layout->interpreter_next, &interpreter)) return false;
  }
  return false;
}

STACKD_HANDLER static bool find_state(const struct runtime* runtime, const struct stackd_managed_thread* thread,
                                      struct thread_state* out) {
  uint64_t hint = __atomic_load_n(hint_of(thread->thread_self), __ATOMIC_RELAXED);
  return (read_state(runtime, thread, hint, out) && out->thread_self == thread->thread_self &&
          is_listed(runtime, thread, out)) ||
         find_in_list(runtime, thread, out);
}

STACKD_HANDLER static bool holds_gil(const struct runtime* runtime, const struct stackd_managed_thread* thread,
                                     const struct thread_state* state) {
  const struct stackd_cpython_layout* layout = runtime->layout;
  uint64_t gil = runtime->address + layout->gil;
  if (!layout->gil_in_runtime && !read_word(thread, state->interpreter + layout->gil, &gil)) return false;
  uint64_t block[STACKD_CPYTHON_GIL_BYTES / 8];
  uint32_t start = layout->gil_holder < layout->gil_locked ? layout->gil_holder : layout->gil_locked;
  return gil != 0 && stackd_managed_read(thread, gil + start, block, sizeof(block)) &&
         word_at(block, layout->gil_holder - start) == state->address && int_at(block, layout->gil_locked - start) == 1;
}

/* --- Symbols --- */

/* Characters and how they are kept: PyUnicode's kind, 1, 2 or 4 bytes each; 0 stands for ASCII. */
struct text {
  struct stackd_managed_bytes characters;
  uint32_t kind;
};

STACKD_HANDLER static bool read_text(const struct runtime* runtime, const struct stackd_managed_thread* thread,
                                     uint64_t address, struct text* out) {
  const struct stackd_cpython_layout* layout = runtime->layout;
  uint64_t block[STACKD_CPYTHON_TEXT_BYTES / 8];
  if (!stackd_managed_read_still(thread, address, block, layout->text_ascii_bytes) || block[1] != runtime->text_type)
    return false;
  uint64_t length = word_at(block, layout->text_length);
  /* interned:2, kind:3, compact:1, ascii:1; interned has 16 bits from 3.14 on without a lock, which is not known here. */
  uint32_t state = (uint32_t)int_at(block, layout->text_state);
  uint32_t kind = state >> 2 & 7;
  bool compact = (state >> 5 & 1) != 0, ascii = (state >> 6 & 1) != 0;
  if (!compact || (kind != 1 && kind != 2 && kind != 4) || length > 1u << 20) return false;
  out->characters.address = address + (ascii ? layout->text_ascii_bytes : layout->text_compact_bytes);
  out->characters.size_bytes = (uint32_t)length * kind;
  out->kind = ascii ? 0 : kind;
  return true;
}

STACKD_HANDLER static struct stackd_managed_bytes read_bytes(const struct runtime* runtime,
                                                             const struct stackd_managed_thread* thread, uint64_t address) {
  const struct stackd_cpython_layout* layout = runtime->layout;
  struct stackd_managed_bytes none = {0, 0};
  uint64_t block[STACKD_CPYTHON_BYTES_BYTES / 8];
  if (!stackd_managed_read_still(thread, address, block, layout->bytes_size + 8) || block[1] != runtime->bytes_type)
    return none;
  uint64_t size_bytes = word_at(block, layout->bytes_size);
  return size_bytes < 1u << 24 ? (struct stackd_managed_bytes){address + layout->bytes_data, (uint32_t)size_bytes} : none;
}

STACKD_HANDLER static bool read_symbol(const struct runtime* runtime, const struct stackd_managed_thread* thread,
                                       uint64_t code, const uint64_t* block, struct stackd_managed_symbol_source* out) {
  const struct stackd_cpython_layout* layout = runtime->layout;
  struct text name, file;
  if (!read_text(runtime, thread, word_at(block, layout->code_name), &name)) return false;
  if (!read_text(runtime, thread, word_at(block, layout->code_file), &file)) return false;
  out->key = code;
  out->first_line = (uint32_t)int_at(block, layout->code_first_line);
  out->table_format = name.kind | file.kind << 4;
  out->function = name.characters;
  out->file = file.characters;
  out->table = read_bytes(runtime, thread, word_at(block, layout->code_lines));
  return true;
}

/* False if this is no code object. */
__attribute__((noinline)) STACKD_HANDLER static bool write_symbol(const struct runtime* runtime,
                                                                  struct stackd_managed_writer* writer,
                                                                  const struct stackd_managed_thread* thread,
                                                                  uint64_t code) {
  const struct stackd_cpython_layout* layout = runtime->layout;
  uint64_t block[STACKD_CPYTHON_CODE_BYTES / 8];
  /* A code object is at least as long from 3.11 on; before, it is 176 bytes, and the rest may be unmapped. */
  uint32_t size_bytes = layout->code_instructions != 0 ? layout->code_instructions : layout->code_lines + 8;
  if (!stackd_managed_read_still(thread, code, block, size_bytes) || block[1] != runtime->code_type) return false;
  /* All but how often it is referred to. */
  const uint64_t* source = block + 1;
  uint32_t source_words = size_bytes / 8 - 1;
  bool is_numbered = layout->version >= FIRST_WITH_NUMBERS;
  struct stackd_symbol_copy* copy = is_numbered ? stackd_symbol_copy_take(code, thread->begin_ns) : NULL;
  bool read = true;
  if (copy != NULL && stackd_symbol_copy_is_of(copy, code, source, source_words, thread->begin_ns)) {
    stackd_managed_symbol_again(writer, copy);
  } else {
    if (copy != NULL) stackd_symbol_copy_begin(copy, code, source, source_words, thread->begin_ns);
    struct stackd_managed_symbol_source symbol;
    read = read_symbol(runtime, thread, code, block, &symbol);
    if (read) stackd_managed_symbol(writer, thread, &symbol, copy);
  }
  if (copy != NULL) stackd_symbol_copy_give_back(copy);
  return read;
}

/* --- Frames --- */

struct walk {
  const struct runtime* runtime;
  struct stackd_managed_writer* writer;
  const struct stackd_managed_thread* thread;
  int frames;
  int32_t status; /* stackd_walk_status */
  /* Code objects whose symbols were written last. */
  uint64_t seen[SEEN];
  /* Memory of the thread, as it was read last: from `window_start` on. */
  uint64_t window_start;
  uint32_t window_bytes;
  uint64_t window[WINDOW_BYTES / 8];
};

struct frame {
  uint64_t previous;
  uint64_t code;
  int64_t position;
  uint32_t entry;
};

/* The bytes of a frame, until the next call; NULL if they cannot be read. From 3.11 on a frame lies behind that of its
 * caller. A system call for each would take most of the time of a walk. So what stands before the frame in its page is read
 * along: it can be read if the frame can. */
STACKD_HANDLER static const void* frame_bytes(struct walk* walk, uint64_t address, uint32_t size_bytes) {
  if (walk->thread->pages != NULL) return stackd_managed_look_still(walk->thread, address, walk->window, size_bytes);
  uint64_t offset = address - walk->window_start;
  if (offset >= walk->window_bytes || walk->window_bytes - offset < size_bytes) {
    offset = address % PAGE_BYTES;
    if (offset > WINDOW_BYTES - STACKD_CPYTHON_FRAME_BYTES) offset = WINDOW_BYTES - STACKD_CPYTHON_FRAME_BYTES;
    walk->window_start = address - offset;
    walk->window_bytes = (uint32_t)offset + size_bytes;
    if (!stackd_managed_read(walk->thread, walk->window_start, walk->window, walk->window_bytes)) {
      walk->window_bytes = 0;
      return NULL;
    }
  }
  return (const char*)walk->window + offset;
}

STACKD_HANDLER static bool read_frame(struct walk* walk, uint64_t address, struct frame* out) {
  const struct stackd_cpython_layout* layout = walk->runtime->layout;
  uint32_t end = layout->frame_position + 8;
  if (layout->frame_entry >= end) end = layout->frame_entry + 1;
  const void* block = frame_bytes(walk, address, end);
  if (block == NULL) {
    walk->status = STACKD_WALK_UNREADABLE;
    return false;
  }
  out->previous = word_at(block, layout->frame_previous);
  out->code = word_at(block, layout->frame_code) & ~3ull; /* 3.14 counts references in these bits */
  out->entry = layout->frame_entry != 0 ? *((const uint8_t*)block + layout->frame_entry) : 0;
  if (layout->code_instructions != 0) {
    out->position = (int64_t)(word_at(block, layout->frame_position) - out->code - layout->code_instructions);
  } else {
    /* 3.10 counts instructions. */
    out->position = (int64_t)int_at(block, layout->frame_position) * (layout->version == 0x30a ? 2 : 1);
  }
  return true;
}

STACKD_HANDLER static bool may_go_on(struct walk* walk) {
  if (walk->frames++ < MAX_FRAMES && walk->writer->words_left >= LAST_WORDS) return true;
  walk->status = STACKD_WALK_LIMIT;
  return false;
}

STACKD_HANDLER static bool write_frame(struct walk* walk, const struct frame* frame) {
  uint64_t* seen = &walk->seen[(frame->code >> 4) % SEEN];
  if (*seen != frame->code) {
    if (!write_symbol(walk->runtime, walk->writer, walk->thread, frame->code)) {
      walk->status = STACKD_WALK_BAD_LAYOUT;
      return false;
    }
    *seen = frame->code;
  }
  stackd_managed_frame(walk->writer, 0, 0, frame->code, frame->position);
  return true;
}

STACKD_HANDLER static void write_boundary(struct walk* walk, uint64_t anchor) {
  stackd_managed_frame(walk->writer, STACKD_MANAGED_BOUNDARY, anchor, 0, 0);
}

STACKD_HANDLER static void walk_frame_objects(struct walk* walk, uint64_t address) {
  struct frame frame;
  while (address != 0 && may_go_on(walk) && read_frame(walk, address, &frame) && write_frame(walk, &frame)) {
    address = frame.previous;
  }
}

/* Lowest owner of a frame that runs no function: it lies on the C stack, or at the root of a thread. FRAME_OWNED_BY_CSTACK
 * is 3 up to 3.13 and 4 then, where 3 is FRAME_OWNED_BY_INTERPRETER. */
#define FIRST_ENTRY_OWNER 3

STACKD_HANDLER static void walk_entry_frames(struct walk* walk, uint64_t address) {
  struct frame frame;
  while (address != 0 && may_go_on(walk) && read_frame(walk, address, &frame)) {
    if (frame.entry >= FIRST_ENTRY_OWNER) {
      write_boundary(walk, address);
    } else if (!write_frame(walk, &frame)) {
      return;
    }
    address = frame.previous;
  }
}

/* The frames of one activation in 3.11. Returns the frame behind, that the activation was called from. */
STACKD_HANDLER static uint64_t walk_activation(struct walk* walk, uint64_t address) {
  struct frame frame;
  while (address != 0 && may_go_on(walk) && read_frame(walk, address, &frame) && write_frame(walk, &frame)) {
    address = frame.previous;
    if (frame.entry != 0) return address;
  }
  return 0;
}

struct cframe {
  uint64_t frame;
  uint64_t previous;
};

STACKD_HANDLER static bool read_cframe(struct walk* walk, uint64_t address, struct cframe* out) {
  const struct stackd_cpython_layout* layout = walk->runtime->layout;
  if (read_word(walk->thread, address + layout->cframe_frame, &out->frame) &&
      read_word(walk->thread, address + layout->cframe_previous, &out->previous)) {
    return true;
  }
  walk->status = STACKD_WALK_UNREADABLE;
  return false;
}

STACKD_HANDLER static void walk_cframes(struct walk* walk, uint64_t address) {
  struct cframe cframe;
  while (address != 0 && read_cframe(walk, address, &cframe) && cframe.frame != 0) {
    uint64_t behind = walk_activation(walk, cframe.frame);
    if (walk->status != STACKD_WALK_WHOLE) return;
    write_boundary(walk, address);
    if (behind == 0) return;
    address = cframe.previous;
  }
}

/* The first thing that the interpreter's function does is to put its _PyCFrame in front of the others, the second is to
 * fill it in. Whether the frames that it leads to end where those of the activation before begin. */
STACKD_HANDLER static bool is_filled_in(struct walk* walk, const struct cframe* cframe) {
  const struct stackd_cpython_layout* layout = walk->runtime->layout;
  struct cframe before;
  struct frame frame;
  uint64_t address = cframe->frame;
  if (cframe->previous == 0) return true;
  if (!read_cframe(walk, cframe->previous, &before)) return false;
  bool with_flag = layout->frames == STACKD_CPYTHON_ENTRY_FLAG;
  for (int i = 0; i < MAX_FRAMES && address != 0 && read_frame(walk, address, &frame); i++) {
    if (frame.entry >= (with_flag ? 1 : FIRST_ENTRY_OWNER)) return frame.previous == before.frame;
    address = frame.previous;
  }
  return false;
}

/* The innermost _PyCFrame that has frames. */
STACKD_HANDLER static uint64_t first_cframe(struct walk* walk, uint64_t address) {
  const struct stackd_loaded_symbol* function = &walk->runtime->interpreter_function;
  if (walk->thread->regs[STACKD_REG_RIP] - function->address >= function->size_bytes) return address;
  struct cframe cframe = {0, 0};
  bool filled_in = read_cframe(walk, address, &cframe) && is_filled_in(walk, &cframe);
  walk->status = STACKD_WALK_WHOLE;
  return filled_in ? address : cframe.previous;
}

STACKD_HANDLER static void walk_frames(struct walk* walk, uint64_t first) {
  struct cframe cframe;
  switch (walk->runtime->layout->frames) {
    case STACKD_CPYTHON_FRAME_OBJECTS:
      walk_frame_objects(walk, first);
      break;
    case STACKD_CPYTHON_ENTRY_FLAG:
      walk_cframes(walk, first_cframe(walk, first));
      break;
    default:
      if (walk->runtime->layout->cframe_previous == 0) {
        walk_entry_frames(walk, first);
      } else if (read_cframe(walk, first_cframe(walk, first), &cframe)) {
        walk_entry_frames(walk, cframe.frame);
      }
      break;
  }
}

void stackd_cpython_walk(struct stackd_managed_writer* writer, const struct stackd_managed_thread* thread) {
  const struct runtime* runtime = __atomic_load_n(&published, __ATOMIC_ACQUIRE);
  if (runtime == NULL || thread->thread_self == 0) return;
  if (runtime->layout == NULL) {
    stackd_managed_begin(writer, STACKD_RUNTIME_CPYTHON, 0, STACKD_WALK_UNKNOWN_VERSION, runtime->version_hex, 0);
    return;
  }
  struct thread_state state;
  if (!find_state(runtime, thread, &state)) {
    stackd_managed_say_if_blind(writer, thread, STACKD_RUNTIME_CPYTHON, runtime->version_hex);
    return;
  }
  uint16_t flags = holds_gil(runtime, thread, &state) ? STACKD_MANAGED_HOLDS_GIL : 0;
  stackd_managed_begin(writer, STACKD_RUNTIME_CPYTHON, flags, STACKD_WALK_WHOLE, runtime->version_hex, state.interpreter);
  if (state.frame == 0) return;
  struct walk walk;
  walk.runtime = runtime;
  walk.writer = writer;
  walk.thread = thread;
  walk.frames = 0;
  walk.status = STACKD_WALK_WHOLE;
  walk.window_start = 0;
  walk.window_bytes = 0;
  for (int i = 0; i < SEEN; i++) walk.seen[i] = 0;
  walk_frames(&walk, state.frame);
  if (walk.status != STACKD_WALK_WHOLE) {
    stackd_managed_begin(writer, STACKD_RUNTIME_CPYTHON, flags, walk.status, runtime->version_hex, state.interpreter);
  }
}
