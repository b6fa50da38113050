#include "agent/runtimes/php/php_walk.h"

#include <stddef.h>

#include "agent/runtimes/php/php.h"
#include "stackd/php_trace.h"

#define MAX_FRAMES 3072
/* What a walk leaves free for the entry that says how it ended. */
#define LAST_WORDS 64
#define SEEN 16
#define MAX_NAME_BYTES (1u << 20)
#define MAX_CODE_COUNT (1u << 24)
/* The interpreter keeps them in registers (ZEND_VM_FP_GLOBAL_REG, ZEND_VM_IP_GLOBAL_REG): r14 and r15. */
#define REG_FRAME 14
#define REG_OPCODE 15

struct walk {
  const struct stackd_php* php;
  struct stackd_managed_writer* writer;
  const struct stackd_managed_thread* thread;
  int frames;
  int32_t status;      /* stackd_walk_status */
  uint64_t seen[SEEN]; /* functions whose symbols were written last */
};

struct frame {
  uint64_t address;
  uint64_t opcode;
  uint64_t function; /* 0: it only marks a place */
  uint64_t previous;
  bool called_by_native;
};

struct function {
  uint32_t type;
  uint64_t name; /* 0: of a file's own code */
  uint64_t class;
  uint64_t file;
  uint64_t code;
  uint32_t code_count;
};

STACKD_HANDLER static uint64_t word_of(const void* block, uint32_t offset) {
  return *(const uint64_t*)((const char*)block + offset);
}

STACKD_HANDLER static uint32_t int_of(const void* block, uint32_t offset) {
  return *(const uint32_t*)((const char*)block + offset);
}

STACKD_HANDLER static bool stop_with(struct walk* walk, int32_t status) {
  walk->status = status;
  return false;
}

STACKD_HANDLER static bool read_call(struct walk* walk, uint64_t address, struct frame* out) {
  uint64_t room[STACKD_PHP_FRAME_BYTES / 8];
  const void* block = stackd_managed_look_still(walk->thread, address, room, sizeof(room));
  if (block == NULL) return stop_with(walk, STACKD_WALK_UNREADABLE);
  out->address = address;
  out->opcode = word_of(block, STACKD_PHP_FRAME_OPCODE);
  out->function = word_of(block, STACKD_PHP_FRAME_FUNCTION);
  out->previous = word_of(block, STACKD_PHP_FRAME_PREVIOUS);
  out->called_by_native = (int_of(block, STACKD_PHP_FRAME_FLAGS) & STACKD_PHP_CALLED_BY_NATIVE) != 0;
  return true;
}

__attribute__((noinline)) STACKD_HANDLER static bool read_function(struct walk* walk, uint64_t address,
                                                                   struct function* out) {
  const struct stackd_php_layout* layout = walk->php->layout;
  uint64_t block[STACKD_PHP_CODE_BYTES / 8];
  if (!stackd_managed_read_still(walk->thread, address, block, STACKD_PHP_FUNCTION_BYTES)) {
    return stop_with(walk, STACKD_WALK_UNREADABLE);
  }
  out->type = int_of(block, STACKD_PHP_FUNCTION_TYPE) & 0xff;
  out->name = word_of(block, STACKD_PHP_FUNCTION_NAME);
  out->class = word_of(block, STACKD_PHP_FUNCTION_CLASS);
  out->file = out->code = out->code_count = 0;
  if (out->type == STACKD_PHP_INTERNAL_FUNCTION) return true;
  if (out->type != STACKD_PHP_USER_FUNCTION && out->type != STACKD_PHP_EVAL_CODE) {
    return stop_with(walk, STACKD_WALK_BAD_LAYOUT);
  }
  if (!stackd_managed_read_still(walk->thread, address, block, sizeof(block))) {
    return stop_with(walk, STACKD_WALK_UNREADABLE);
  }
  out->file = word_of(block, layout->code_file);
  out->code = word_of(block, layout->code);
  out->code_count = int_of(block, layout->code_count);
  return out->code_count < MAX_CODE_COUNT || stop_with(walk, STACKD_WALK_BAD_LAYOUT);
}

/* The characters of a zend_string; none at 0. */
STACKD_HANDLER static bool read_string(struct walk* walk, uint64_t address, struct stackd_managed_bytes* out) {
  out->address = address + STACKD_PHP_TEXT_CHARACTERS;
  out->size_bytes = 0;
  if (address == 0) return true;
  uint64_t length;
  if (!stackd_managed_read_still(walk->thread, address + STACKD_PHP_TEXT_LENGTH, &length, sizeof(length))) {
    return stop_with(walk, STACKD_WALK_UNREADABLE);
  }
  if (length > MAX_NAME_BYTES) return stop_with(walk, STACKD_WALK_BAD_LAYOUT);
  out->size_bytes = (uint32_t)length;
  return true;
}

__attribute__((noinline)) STACKD_HANDLER static bool write_function(struct walk* walk, const struct frame* frame,
                                                                    const struct function* function) {
  struct stackd_managed_symbol_source symbol;
  uint64_t class_name = 0;
  if (function->class != 0 &&
      !stackd_managed_read_still(walk->thread, function->class + STACKD_PHP_CLASS_NAME, &class_name, sizeof(class_name))) {
    return stop_with(walk, STACKD_WALK_UNREADABLE);
  }
  symbol.key = frame->function;
  symbol.first_line = 0;
  symbol.table_format = function->type == STACKD_PHP_EVAL_CODE ? STACKD_PHP_EVALUATED
                        : frame->called_by_native              ? STACKD_PHP_MAIN
                                                               : STACKD_PHP_INCLUDED;
  if (!read_string(walk, function->name, &symbol.function) || !read_string(walk, function->file, &symbol.file) ||
      !read_string(walk, class_name, &symbol.table)) {
    return false;
  }
  stackd_managed_symbol(walk->writer, walk->thread, &symbol, NULL);
  return true;
}

/* Its line, or 0. A frame keeps the opcode of its last call; what has run since, registers alone tell. */
STACKD_HANDLER static int64_t line_of(const struct walk* walk, const struct frame* frame, const struct function* function) {
  const struct stackd_loaded_symbol* interpreter = &walk->php->interpreter_function;
  const uint64_t* regs = walk->thread->regs;
  uint64_t opcode = frame->opcode;
  if (regs[STACKD_REG_RIP] - interpreter->address < interpreter->size_bytes && regs[REG_FRAME] == frame->address) {
    opcode = regs[REG_OPCODE];
  }
  uint32_t line;
  uint64_t offset = opcode - function->code;
  if (offset % STACKD_PHP_OPCODE_BYTES != 0 || offset / STACKD_PHP_OPCODE_BYTES >= function->code_count) return 0;
  bool read = stackd_managed_read_still(walk->thread, opcode + STACKD_PHP_OPCODE_LINE, &line, sizeof(line));
  return read ? line : 0;
}

STACKD_HANDLER static bool write_call(struct walk* walk, const struct frame* frame) {
  struct function function;
  if (!read_function(walk, frame->function, &function)) return false;
  /* What a fiber begins with. */
  if (function.type == STACKD_PHP_INTERNAL_FUNCTION && function.name == 0) return true;
  uint64_t* seen = &walk->seen[(frame->function >> 4) % SEEN];
  if (*seen != frame->function) {
    if (!write_function(walk, frame, &function)) return false;
    *seen = frame->function;
  }
  stackd_managed_frame(walk->writer, 0, 0, frame->function, line_of(walk, frame, &function));
  /* A function in C that native code called is no call of the interpreter's. */
  if (frame->called_by_native && function.type != STACKD_PHP_INTERNAL_FUNCTION) {
    stackd_managed_frame(walk->writer, STACKD_MANAGED_BOUNDARY, 0, 0, 0);
  }
  return true;
}

STACKD_HANDLER static void walk_calls(struct walk* walk, uint64_t address) {
  for (; address != 0; walk->frames++) {
    struct frame frame;
    if (walk->frames >= MAX_FRAMES || walk->writer->words_left < LAST_WORDS) {
      walk->status = STACKD_WALK_LIMIT;
      return;
    }
    if (!read_call(walk, address, &frame)) return;
    if (frame.function != 0 && !write_call(walk, &frame)) return;
    address = frame.previous;
  }
}

void stackd_php_walk(struct stackd_managed_writer* writer, const struct stackd_managed_thread* thread) {
  const struct stackd_php* php = stackd_php_found();
  /* Without thread safety one thread runs all functions. */
  if (php == NULL || thread->tid != (uint32_t)thread->pid) return;
  if (php->layout == NULL) {
    stackd_managed_begin(writer, STACKD_RUNTIME_PHP, 0, STACKD_WALK_UNKNOWN_VERSION, php->version, 0);
    return;
  }
  uint64_t first;
  if (!stackd_managed_read(thread, php->globals + php->layout->globals_current_frame, &first, sizeof(first))) {
    stackd_managed_say_if_blind(writer, thread, STACKD_RUNTIME_PHP, php->version);
    return;
  }
  stackd_managed_begin(writer, STACKD_RUNTIME_PHP, 0, STACKD_WALK_WHOLE, php->version, php->globals);
  struct walk walk;
  walk.php = php;
  walk.writer = writer;
  walk.thread = thread;
  walk.frames = 0;
  walk.status = STACKD_WALK_WHOLE;
  for (int i = 0; i < SEEN; i++) walk.seen[i] = 0;
  walk_calls(&walk, first);
  if (walk.status != STACKD_WALK_WHOLE) {
    stackd_managed_begin(writer, STACKD_RUNTIME_PHP, 0, walk.status, php->version, php->globals);
  }
}
