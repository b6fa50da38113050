#include "agent/runtimes/ruby/ruby_walk.h"

#include <stddef.h>

#include "agent/runtimes/ruby/ruby.h"
#include "agent/runtimes/ruby/ruby_activations.h"
#include "agent/runtimes/ruby/ruby_lines.h"

#define MAX_FRAMES 3072u
/* What a walk leaves free for the entry that says how it ended. */
#define LAST_WORDS 64
#define SEEN 16
#define MAX_NAME_BYTES (1u << 20)
/* A stack of 1 MiB is usual. */
#define MAX_STACK_WORDS (1u << 27)
/* glibc's struct pthread has the table of modules' thread-local storage here; two words for each module. */
#define MODULES_OF_THREAD 8u

struct walk {
  const struct stackd_ruby* ruby;
  struct stackd_managed_writer* writer;
  const struct stackd_managed_thread* thread;
  int32_t status;      /* stackd_walk_status */
  uint64_t seen[SEEN]; /* methods and blocks whose symbols were written last */
};

STACKD_HANDLER static bool read_pointer(const struct stackd_managed_thread* thread, uint64_t address, uint64_t* out) {
  return stackd_managed_read(thread, address, out, sizeof(*out));
}

STACKD_HANDLER static bool end_with(struct walk* walk, int32_t status) {
  walk->status = status;
  return false;
}

STACKD_HANDLER static bool read_still(struct walk* walk, uint64_t address, void* out, uint32_t size_bytes) {
  return stackd_managed_read_still(walk->thread, address, out, size_bytes) || end_with(walk, STACKD_WALK_UNREADABLE);
}

/* --- The thread's context --- */

struct context {
  uint64_t address;
  uint64_t thread; /* rb_thread_t */
  uint64_t frame;
  uint64_t tag; /* the innermost (ruby_activations.h) */
  uint64_t stack_end;
};

STACKD_HANDLER static bool find_context(const struct stackd_ruby* ruby, const struct stackd_managed_thread* thread,
                                        uint64_t* out) {
  uint64_t begin = thread->thread_self, modules;
  if (ruby->place.module != 0 && (!read_pointer(thread, begin + MODULES_OF_THREAD, &modules) ||
                                  !read_pointer(thread, modules + 16 * ruby->place.module, &begin))) {
    return false;
  }
  return read_pointer(thread, begin + (uint64_t)ruby->place.offset, out) && *out != 0;
}

/* A thread of Ruby's points back at the context that it is in. */
STACKD_HANDLER static bool read_context(const struct stackd_ruby* ruby, const struct stackd_managed_thread* thread,
                                        struct context* out) {
  uint64_t block[STACKD_RUBY_CONTEXT_BYTES / 8], back;
  if (!find_context(ruby, thread, &out->address)) return false;
  if (!stackd_managed_read(thread, out->address, block, sizeof(block))) return false;
  out->thread = block[STACKD_RUBY_CONTEXT_THREAD / 8];
  out->frame = block[STACKD_RUBY_CONTEXT_FRAME / 8];
  out->tag = block[STACKD_RUBY_CONTEXT_TAG / 8];
  uint64_t words = block[STACKD_RUBY_CONTEXT_STACK_WORDS / 8];
  out->stack_end = block[STACKD_RUBY_CONTEXT_STACK / 8] + 8 * (words < MAX_STACK_WORDS ? words : 0);
  return read_pointer(thread, out->thread + ruby->layout->thread_context, &back) && back == out->address;
}

STACKD_HANDLER static bool has_lock(const struct stackd_ruby* ruby, const struct stackd_managed_thread* thread,
                                    const struct context* context) {
  uint64_t ractor, running;
  return read_pointer(thread, context->thread + STACKD_RUBY_THREAD_RACTOR, &ractor) &&
         read_pointer(thread, ractor + ruby->layout->ractor_running, &running) && running == context->thread;
}

/* --- Symbols --- */

STACKD_HANDLER static bool read_label(struct walk* walk, uint64_t address, struct stackd_managed_bytes* out) {
  const struct stackd_ruby_layout* layout = walk->ruby->layout;
  uint64_t block[STACKD_RUBY_TEXT_BYTES / 8];
  if (!read_still(walk, address, block, sizeof(block))) return false;
  uint64_t flags = block[STACKD_RUBY_OBJECT_FLAGS / 8];
  uint64_t length = block[STACKD_RUBY_TEXT_LENGTH / 8];
  if ((flags & STACKD_RUBY_TYPE_MASK) != STACKD_RUBY_STRING) return end_with(walk, STACKD_WALK_BAD_LAYOUT);
  if ((flags & STACKD_RUBY_STRING_IS_ELSEWHERE) != 0) {
    out->address = block[STACKD_RUBY_TEXT_POINTER / 8];
  } else {
    out->address = address + layout->text_characters;
    if (layout->text_length_is_in_flags) length = flags >> STACKD_RUBY_STRING_LENGTH_SHIFT & 0x1f;
  }
  if (length > MAX_NAME_BYTES) return end_with(walk, STACKD_WALK_BAD_LAYOUT);
  out->size_bytes = (uint32_t)length;
  return true;
}

/* A path, or an array of it and of the one that leads there without links. */
STACKD_HANDLER static bool read_path(struct walk* walk, uint64_t address, struct stackd_managed_bytes* out) {
  uint64_t flags;
  if (!read_still(walk, address, &flags, sizeof(flags))) return false;
  uint64_t is_array = STACKD_RUBY_ARRAY | STACKD_RUBY_ARRAY_IS_EMBEDDED;
  if ((flags & (STACKD_RUBY_TYPE_MASK | STACKD_RUBY_ARRAY_IS_EMBEDDED)) == is_array &&
      !read_still(walk, address + STACKD_RUBY_ARRAY_FIRST, &address, sizeof(address))) {
    return false;
  }
  return read_label(walk, address, out);
}

__attribute__((noinline)) STACKD_HANDLER static bool write_label(struct walk* walk, uint64_t code, const uint64_t* body) {
  struct stackd_managed_symbol_source symbol;
  symbol.key = code;
  symbol.first_line = 0;
  symbol.table_format = 0;
  symbol.table.address = symbol.table.size_bytes = 0;
  if (!read_label(walk, body[STACKD_RUBY_BODY_LABEL / 8], &symbol.function)) return false;
  if (!read_path(walk, body[STACKD_RUBY_BODY_PATH / 8], &symbol.file)) return false;
  stackd_managed_symbol(walk->writer, walk->thread, &symbol, NULL);
  return true;
}

/* --- Frames --- */

STACKD_HANDLER static bool write_method(struct walk* walk, uint64_t code, uint64_t pc) {
  uint64_t block[STACKD_RUBY_CODE_BYTES / 8];
  uint64_t body[STACKD_RUBY_BODY_BYTES / 8];
  if (!read_still(walk, code, block, sizeof(block))) return false;
  uint64_t flags = block[STACKD_RUBY_OBJECT_FLAGS / 8];
  if ((flags & STACKD_RUBY_TYPE_MASK) != STACKD_RUBY_INTERNAL ||
      (flags >> STACKD_RUBY_INTERNAL_KIND_SHIFT & 0xf) != STACKD_RUBY_INTERNAL_CODE) {
    return end_with(walk, STACKD_WALK_BAD_LAYOUT);
  }
  if (!read_still(walk, block[STACKD_RUBY_CODE_BODY / 8], body, sizeof(body))) return false;
  uint64_t* seen = &walk->seen[(code >> 4) % SEEN];
  if (*seen != code) {
    if (!write_label(walk, code, body)) return false;
    *seen = code;
  }
  stackd_managed_frame(walk->writer, 0, 0, code, stackd_ruby_line(walk->ruby->layout, walk->thread, body, pc));
  return true;
}

struct method {
  uint64_t code; /* 0: of a method in C, or of none */
  uint64_t pc;
  bool called_by_native;
};

STACKD_HANDLER static bool read_method(struct walk* walk, uint64_t address, struct method* out) {
  uint64_t block[STACKD_RUBY_FRAME_READ_BYTES / 8], flags;
  if (!read_still(walk, address, block, sizeof(block))) return false;
  out->pc = block[STACKD_RUBY_FRAME_PC / 8];
  out->code = out->pc != 0 ? block[STACKD_RUBY_FRAME_CODE / 8] : 0;
  out->called_by_native = false;
  if (out->code == 0) return true;
  if (!read_still(walk, block[STACKD_RUBY_FRAME_FLAGS_POINTER / 8], &flags, sizeof(flags))) return false;
  out->called_by_native = (flags & STACKD_RUBY_CALLED_BY_NATIVE) != 0;
  return true;
}

/* Frames lie one behind the other, up to one at the end of the stack that is none. */
STACKD_HANDLER static bool is_in_stack(const struct walk* walk, const struct context* context, uint64_t address) {
  return address + 2 * walk->ruby->layout->frame_bytes <= context->stack_end;
}

STACKD_HANDLER static uint32_t count_activations(struct walk* walk, const struct context* context) {
  uint32_t count = 0, frames = 0;
  struct method method;
  for (uint64_t at = context->frame; is_in_stack(walk, context, at); at += walk->ruby->layout->frame_bytes) {
    if (frames++ >= MAX_FRAMES || !read_method(walk, at, &method)) return 0;
    count += method.called_by_native;
  }
  return count;
}

STACKD_HANDLER static void walk_methods(struct walk* walk, const struct context* context) {
  struct stackd_ruby_tags tags;
  uint32_t activations = count_activations(walk, context);
  bool has_anchors = stackd_ruby_tags_begin(&tags, walk->thread, &walk->ruby->interpreter, context->tag, activations);
  walk->status = STACKD_WALK_WHOLE;
  uint32_t frames = 0;
  struct method method;
  for (uint64_t at = context->frame; is_in_stack(walk, context, at); at += walk->ruby->layout->frame_bytes) {
    if (frames++ >= MAX_FRAMES || walk->writer->words_left < LAST_WORDS) {
      walk->status = STACKD_WALK_LIMIT;
      return;
    }
    if (!read_method(walk, at, &method)) return;
    if (method.code == 0) continue;
    if (!write_method(walk, method.code, method.pc)) return;
    if (!method.called_by_native) continue;
    uint64_t anchor = has_anchors ? stackd_ruby_next_activation(&tags) : 0;
    stackd_managed_frame(walk->writer, STACKD_MANAGED_BOUNDARY, anchor, 0, 0);
  }
}

void stackd_ruby_walk(struct stackd_managed_writer* writer, const struct stackd_managed_thread* thread) {
  const struct stackd_ruby* ruby = stackd_ruby_found();
  if (ruby == NULL || thread->thread_self == 0) return;
  if (ruby->layout == NULL) {
    if (thread->tid == (uint32_t)thread->pid) {
      stackd_managed_begin(writer, STACKD_RUNTIME_RUBY, 0, STACKD_WALK_UNKNOWN_VERSION, ruby->version, 0);
    }
    return;
  }
  struct context context;
  if (!read_context(ruby, thread, &context)) {
    stackd_managed_say_if_blind(writer, thread, STACKD_RUNTIME_RUBY, ruby->version);
    return;
  }
  uint16_t flags = has_lock(ruby, thread, &context) ? STACKD_MANAGED_HOLDS_GIL : 0;
  stackd_managed_begin(writer, STACKD_RUNTIME_RUBY, flags, STACKD_WALK_WHOLE, ruby->version, context.address);
  struct walk walk;
  walk.ruby = ruby;
  walk.writer = writer;
  walk.thread = thread;
  walk.status = STACKD_WALK_WHOLE;
  for (int i = 0; i < SEEN; i++) walk.seen[i] = 0;
  walk_methods(&walk, &context);
  if (walk.status != STACKD_WALK_WHOLE) {
    stackd_managed_begin(writer, STACKD_RUNTIME_RUBY, flags, walk.status, ruby->version, context.address);
  }
}
