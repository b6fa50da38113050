/* The walk goes from frame to frame by V8's own links, from the innermost frame that V8 knows to the outermost entry that
 * it knows. Nothing is searched for. So nothing that a call left behind on the stack is taken for a frame. */
#include "agent/runtimes/v8/v8_walk.h"

#include "agent/runtimes/v8/v8.h"

#define MAX_FRAMES 512u
#define MAX_HOPS 2048u /* frames that are no function of a script count here too */

/* A frame by its words from fp - 40 up. */
enum { FRAME_BYTECODE_OFFSET = 0, FRAME_BYTECODES = 1, FRAME_FUNCTION = 3, FRAME_CONTEXT = 4, FRAME_FP = 5, FRAME_PC = 6 };
#define FRAME_WORDS 7
#define FRAME_BELOW_FP 40u

/* What a frame has in place of a context if it is no function's: its type, times 2. */
#define MARKER_ENTRY 2u
#define MARKER_CONSTRUCT_ENTRY 4u
/* An entry frame keeps the c_entry_fp of the activation before it: marker, context, five registers, then this. */
#define ENTRY_NEXT_EXIT_BELOW_FP 64u

/* What V8 shares among closures of one function; 0 if `*function` is none. */
__attribute__((noinline)) STACKD_HANDLER static uint64_t shared_of(struct stackd_v8_walk* walk, uint64_t* function) {
  uint64_t words[STACKD_V8_FUNCTION_WORDS];
  int32_t type = stackd_v8_read_heap_object(walk, function, words, STACKD_V8_FUNCTION_WORDS);
  if (type < walk->layout->type.first_function || type > walk->layout->type.last_function) return 0;
  return words[walk->layout->function_shared / 8];
}

/* `is_call`: pc is where the frame is returned to, not where it was interrupted. */
STACKD_HANDLER static void write_js_frame(struct stackd_v8_walk* walk, uint64_t fp, const uint64_t* words, uint64_t pc,
                                          bool is_call) {
  const struct stackd_v8_layout* layout = walk->layout;
  uint64_t shared_words[STACKD_V8_SHARED_WORDS];
  uint64_t function = words[FRAME_FUNCTION];
  uint64_t shared = shared_of(walk, &function);
  if (stackd_v8_read_heap_object(walk, &shared, shared_words, STACKD_V8_SHARED_WORDS) != layout->type.shared) return;
  int64_t position = (int64_t)(pc << 1 | STACKD_V8_CODE);
  uint64_t bytecodes = words[FRAME_BYTECODES];
  if (stackd_v8_is_small_integer(words[FRAME_BYTECODE_OFFSET]) &&
      stackd_v8_type_of(walk, &bytecodes) == layout->type.bytecode_array) {
    /* The word counts from the array's tagged address. */
    int64_t offset = (int64_t)(words[FRAME_BYTECODE_OFFSET] >> 32) + 1 - layout->bytecode_first;
    position = stackd_v8_script_offset(walk, bytecodes, offset);
    if (position != STACKD_V8_NO_POSITION) position *= 2;
  } else if (pc != 0) {
    int64_t script_offset = stackd_v8_write_inlined(walk, fp, function, shared, shared_words, pc, is_call);
    if (script_offset != STACKD_V8_NO_POSITION) position = script_offset * 2;
  }
  stackd_v8_write_frame(walk, fp, shared, shared_words, position);
}

struct range {
  uint64_t start; /* the thread's stack from here */
  uint64_t entry; /* to the outermost frame of V8's */
};

STACKD_HANDLER static bool is_frame(const struct range* range, uint64_t fp) {
  return (fp & 7) == 0 && fp >= range->start && fp <= range->entry;
}

/* From frame `fp`, which executes at `pc`, to the outermost. With `write` false it only tries whether they hang together.
 */
STACKD_HANDLER static int32_t walk_links(struct stackd_v8_walk* walk, const struct range* range, uint64_t fp, uint64_t pc,
                                         bool write) {
  uint32_t frames = 0;
  for (uint32_t hop = 0; hop < MAX_HOPS; hop++) {
    uint64_t words[FRAME_WORDS];
    if (!stackd_managed_read(walk->thread, fp - FRAME_BELOW_FP, words, sizeof(words))) return STACKD_WALK_UNREADABLE;
    uint64_t marker = words[FRAME_CONTEXT];
    uint64_t next = words[FRAME_FP];
    if (marker == MARKER_ENTRY || marker == MARKER_CONSTRUCT_ENTRY) {
      if (fp == range->entry) return STACKD_WALK_WHOLE;
      if (!stackd_v8_read_word(walk, fp - ENTRY_NEXT_EXIT_BELOW_FP, &next)) return STACKD_WALK_UNREADABLE;
      if (write) stackd_managed_frame(walk->writer, STACKD_MANAGED_BOUNDARY, fp, 0, STACKD_V8_NO_POSITION);
    } else if (write && (marker & 1) != 0) {
      if (++frames > MAX_FRAMES) return STACKD_WALK_LIMIT;
      write_js_frame(walk, fp, words, pc, hop > 0);
    }
    if (!is_frame(range, next) || next <= fp) return STACKD_WALK_BAD_LAYOUT;
    pc = words[FRAME_PC];
    fp = next;
  }
  return STACKD_WALK_LIMIT;
}

/* The isolate that the thread is in; 0: none. */
STACKD_HANDLER static uint64_t isolate_of(const struct stackd_v8_walk* walk) {
  const struct stackd_v8_layout* layout = walk->layout;
  uint64_t at = walk->thread->thread_self + (uint64_t)layout->isolate_from_thread;
  if (layout->isolate_key != 0) {
    uint32_t key;
    if (!stackd_managed_read(walk->thread, layout->isolate_key, &key, sizeof(key)) || key >= 32) return 0;
    at += 16ull * key;
  }
  uint64_t isolate, self;
  if (!stackd_v8_read_word(walk, at, &isolate) || isolate == 0 || (isolate & 7) != 0) return 0;
  if (!stackd_v8_read_word(walk, isolate + layout->isolate_self, &self) || self != isolate) return 0;
  return isolate;
}

struct isolate {
  uint64_t c_entry_fp, handler, js_entry_sp, fast_call_fp;
};

STACKD_HANDLER static bool read_isolate(const struct stackd_v8_walk* walk, uint64_t address, struct isolate* isolate) {
  const struct stackd_v8_layout* layout = walk->layout;
  return stackd_v8_read_word(walk, address + layout->c_entry_fp, &isolate->c_entry_fp) &&
         stackd_v8_read_word(walk, address + layout->handler, &isolate->handler) &&
         stackd_v8_read_word(walk, address + layout->js_entry_sp, &isolate->js_entry_sp) &&
         stackd_v8_read_word(walk, address + layout->fast_call_fp, &isolate->fast_call_fp);
}

/* Where the walk begins. JavaScript that calls C++ leaves its frame in the isolate. JavaScript that runs has it in rbp, but
 * what it was interrupted in may not. Then V8's links do not lead from there to the entry, and nothing is told. */
STACKD_HANDLER static int32_t walk_isolate(struct stackd_v8_walk* walk, const struct isolate* isolate) {
  const uint64_t* regs = walk->thread->regs;
  struct range range = {walk->thread->stack_start, isolate->js_entry_sp};
  if (isolate->js_entry_sp == 0) return STACKD_WALK_WHOLE;
  if (!is_frame(&range, range.entry) || range.entry >= walk->thread->stack_end) return STACKD_WALK_BAD_LAYOUT;
  uint64_t exit = isolate->c_entry_fp;
  bool has_exit = is_frame(&range, exit) && exit < isolate->handler;
  uint64_t fast = isolate->fast_call_fp;
  if (is_frame(&range, fast) && (!has_exit || fast < exit)) return walk_links(walk, &range, fast, 0, true);
  if (has_exit) return walk_links(walk, &range, exit, 0, true);
  uint64_t fp = regs[STACKD_REG_RBP];
  if (!is_frame(&range, fp)) return STACKD_WALK_BAD_LAYOUT;
  int32_t status = walk_links(walk, &range, fp, 0, false);
  if (status != STACKD_WALK_WHOLE && status != STACKD_WALK_LIMIT) return status;
  return walk_links(walk, &range, fp, regs[STACKD_REG_RIP], true);
}

void stackd_v8_walk(struct stackd_managed_writer* writer, const struct stackd_managed_thread* thread) {
  const struct stackd_v8_layout* layout = stackd_v8_found();
  if (layout == NULL) return;
  if (!layout->known) {
    if (thread->tid == (uint32_t)thread->pid) {
      stackd_managed_begin(writer, STACKD_RUNTIME_V8, 0, STACKD_WALK_UNKNOWN_VERSION, layout->version, 0);
    }
    return;
  }
  struct stackd_v8_walk walk;
  walk.thread = thread;
  walk.layout = layout;
  walk.writer = writer;
  for (uint32_t i = 0; i < STACKD_V8_KNOWN_MAPS; i++) walk.known_maps[i] = 0;
  for (uint32_t i = 0; i < STACKD_V8_SEEN_FUNCTIONS; i++) walk.seen[i] = 0;
  walk.script.script = 0;
  walk.compiled.function = 0;
  uint64_t address = isolate_of(&walk);
  walk.isolate = address;
  struct isolate isolate;
  if (address == 0 || !read_isolate(&walk, address, &isolate)) {
    stackd_managed_say_if_blind(writer, thread, STACKD_RUNTIME_V8, layout->version);
    return;
  }
  stackd_managed_begin(writer, STACKD_RUNTIME_V8, 0, STACKD_WALK_WHOLE, layout->version, address);
  int32_t status = walk_isolate(&walk, &isolate);
  /* How it ended is known only now: a second beginning, without frames, says it. */
  if (status != STACKD_WALK_WHOLE) stackd_managed_begin(writer, STACKD_RUNTIME_V8, 0, status, layout->version, address);
}
