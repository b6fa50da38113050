#include "agent/runtimes/hotspot/hotspot.h"

#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/sys/target.h"

/* An interpreted frame, in words from its frame pointer: frame_x86.hpp of HotSpot, the same from release 9 to 26. */
#define SENDER_SP (-1)
#define METHOD (-3)
#define BYTECODE (-8)
#define BYTECODE_8 (-7) /* in release 8, where no word for the class is between */
#define RETURN_ADDRESS 1

/* The interpreter keeps the place in the bytecode here, and in the frame only while it has called something. */
#define REG_BYTECODE 13 /* r13 */

#define MAX_STACK_BYTES (1u << 20)
#define MAX_FRAMES 2048
#define WINDOW_WORDS 96
/* How far a caller's frame may begin above: arguments are between, 255 at most. */
#define MAX_ARGUMENTS_BYTES 4096u

#define MAX_ENTRIES 8192
#define MAX_STRIDE 256u
#define MAX_NAME 48
#define MAX_CONST_METHOD_BYTES 128u

struct layout {
  uint64_t code_heap; /* release 8: address of the variable with the address of the only one; else 0 */
  uint64_t code_low;  /* address of the variable, or in the heap */
  uint64_t code_high; /* address of the variable, or in the heap */
  uint32_t method_const_method;
  uint32_t const_method_constants;
  uint32_t const_method_size; /* a field: of the whole, in words */
  uint32_t const_method_code_size;
  uint32_t const_method_bytes; /* of what stands before the bytecode */
};

/* The one that was found, or NULL. */
static const struct layout* published;

/* --- Finding (not in a handler) ---
 *
 * libjvm describes itself in tables for debuggers. It may be half loaded, so that they are read as foreign memory is. */

static bool read_own(uint64_t address, void* out, uint32_t size_bytes) {
  struct stackd_managed_thread self;
  memset(&self, 0, sizeof(self));
  self.pid = stackd_target_pid();
  return stackd_managed_read(&self, address, out, size_bytes);
}

static bool read_variable(const struct stackd_loaded_object* object, const char* name, uint64_t* out) {
  uint64_t address = stackd_loaded_symbol(object, name).address;
  return address != 0 && read_own(address, out, sizeof(*out));
}

static bool text_is(uint64_t address, const char* text) {
  char copy[MAX_NAME];
  uint32_t length = (uint32_t)strlen(text) + 1;
  return address != 0 && read_own(address, copy, length) && memcmp(copy, text, length) == 0;
}

static uint64_t word_in(const char* entry, uint64_t offset) {
  uint64_t word;
  memcpy(&word, entry + offset, sizeof(word));
  return word;
}

struct field {
  const char* type;
  const char* name;
  bool is_static;
  uint64_t value; /* an offset, or an address; 0 where not found */
};

static bool find_fields(const struct stackd_loaded_object* object, struct field* fields, int count) {
  uint64_t entry, stride, type, name, offset, address;
  if (!read_variable(object, "gHotSpotVMStructs", &entry) ||
      !read_variable(object, "gHotSpotVMStructEntryArrayStride", &stride) ||
      !read_variable(object, "gHotSpotVMStructEntryTypeNameOffset", &type) ||
      !read_variable(object, "gHotSpotVMStructEntryFieldNameOffset", &name) ||
      !read_variable(object, "gHotSpotVMStructEntryOffsetOffset", &offset) ||
      !read_variable(object, "gHotSpotVMStructEntryAddressOffset", &address)) {
    return false;
  }
  if (stride > MAX_STRIDE || stride < 8 || type > stride - 8 || name > stride - 8 || offset > stride - 8 ||
      address > stride - 8) {
    return false;
  }
  int found = 0;
  for (int i = 0; i < MAX_ENTRIES && found < count; i++, entry += stride) {
    char copy[MAX_STRIDE];
    if (!read_own(entry, copy, (uint32_t)stride) || word_in(copy, type) == 0) break;
    for (int f = 0; f < count; f++) {
      if (!text_is(word_in(copy, name), fields[f].name) || !text_is(word_in(copy, type), fields[f].type)) continue;
      fields[f].value = word_in(copy, fields[f].is_static ? address : offset);
      found++;
    }
  }
  return found == count;
}

static uint64_t type_bytes(const struct stackd_loaded_object* object, const char* wanted) {
  uint64_t entry, stride, name, size;
  if (!read_variable(object, "gHotSpotVMTypes", &entry) ||
      !read_variable(object, "gHotSpotVMTypeEntryArrayStride", &stride) ||
      !read_variable(object, "gHotSpotVMTypeEntryTypeNameOffset", &name) ||
      !read_variable(object, "gHotSpotVMTypeEntrySizeOffset", &size)) {
    return 0;
  }
  if (stride > MAX_STRIDE || stride < 8 || name > stride - 8 || size > stride - 8) return 0;
  for (int i = 0; i < MAX_ENTRIES; i++, entry += stride) {
    char copy[MAX_STRIDE];
    if (!read_own(entry, copy, (uint32_t)stride) || word_in(copy, name) == 0) break;
    if (text_is(word_in(copy, name), wanted)) return word_in(copy, size);
  }
  return 0;
}

/* Code of accept(). Only the helper thread uses it, as all that looks for code. */
static struct stackd_loaded_symbol accept_code;

/* Between the call of poll() and accept() lie the frames of two small functions. */
#define ACCEPT_WORDS 64
/* From a frame pointer to its caller's, at most. */
#define ACCEPT_FRAME_BYTES 131072u

static bool is_here;

bool stackd_hotspot_is_here(void) { return __atomic_load_n(&is_here, __ATOMIC_RELAXED); }

bool stackd_hotspot_has_accept(void) { return accept_code.address != 0; }

uint64_t stackd_hotspot_frame_below_accept(const struct stackd_syscall* call, uint64_t rsp) {
  uint64_t words[ACCEPT_WORDS];
  bool polls = (call->known & STACKD_SYSCALL_KNOWN) != 0 && call->number == SYS_poll;
  if (!polls || accept_code.address == 0 || !read_own(rsp, words, sizeof(words))) return 0;
  for (int i = 1; i < ACCEPT_WORDS; i++) {
    /* The libraries of the VM keep frame pointers: below the return address is the caller's. */
    uint64_t frame = rsp + 8 * (uint64_t)(i - 1);
    bool returns = words[i] - accept_code.address < accept_code.size_bytes;
    if (returns && words[i - 1] > frame && words[i - 1] - frame < ACCEPT_FRAME_BYTES) return frame;
  }
  return 0;
}

/* Where the bounds of all code of the VM's making are. */
static bool find_code(const struct stackd_loaded_object* object, struct layout* layout) {
  struct field bounds[] = {{"CodeCache", "_low_bound", true, 0}, {"CodeCache", "_high_bound", true, 0}};
  if (find_fields(object, bounds, 2)) {
    layout->code_low = bounds[0].value;
    layout->code_high = bounds[1].value;
    return true;
  }
  struct field heap[] = {{"CodeCache", "_heap", true, 0},
                         {"CodeHeap", "_memory", false, 0},
                         {"VirtualSpace", "_low", false, 0},
                         {"VirtualSpace", "_high", false, 0}};
  if (!find_fields(object, heap, 4)) return false;
  layout->code_heap = heap[0].value;
  layout->code_low = heap[1].value + heap[2].value;
  layout->code_high = heap[1].value + heap[3].value;
  return true;
}

void stackd_hotspot_find(const struct stackd_loaded_object* object) {
  static struct layout found;
  if (accept_code.address == 0) {
    accept_code = stackd_loaded_symbol(object, "Java_java_net_PlainSocketImpl_socketAccept");
  }
  if (__atomic_load_n(&published, __ATOMIC_RELAXED) != NULL) return;
  if (stackd_loaded_symbol(object, "gHotSpotVMStructs").address == 0) return;
  __atomic_store_n(&is_here, true, __ATOMIC_RELAXED);
  struct field fields[] = {
      {"Method", "_constMethod", false, 0},
      {"ConstMethod", "_constants", false, 0},
      {"ConstMethod", "_constMethod_size", false, 0},
      {"ConstMethod", "_code_size", false, 0},
  };
  int count = sizeof(fields) / sizeof(fields[0]);
  uint64_t const_method_bytes = type_bytes(object, "ConstMethod");
  if (const_method_bytes < 16 || const_method_bytes > MAX_CONST_METHOD_BYTES || !find_fields(object, fields, count)) return;
  for (int i = 0; i < count; i++) {
    if (fields[i].value > MAX_CONST_METHOD_BYTES - 8) return;
  }
  for (int i = 1; i < count; i++) {
    if (fields[i].value > const_method_bytes - 8) return;
  }
  if (!find_code(object, &found)) return;
  found.method_const_method = (uint32_t)fields[0].value;
  found.const_method_constants = (uint32_t)fields[1].value;
  found.const_method_size = (uint32_t)fields[2].value;
  found.const_method_code_size = (uint32_t)fields[3].value;
  found.const_method_bytes = (uint32_t)const_method_bytes;
  __atomic_store_n(&published, &found, __ATOMIC_RELEASE);
  stackd_managed_has_found(/*needs_memory=*/true);
}

/* --- Reading --- */

struct walk {
  const struct layout* layout;
  const struct stackd_managed_thread* thread;
  struct stackd_managed_writer* writer;
  uint64_t code_low;
  uint64_t code_high;
  uint32_t frames;
};

STACKD_HANDLER static bool is_object(uint64_t address) { return address != 0 && address % 8 == 0; }

/* The bytecode of what may be a Method. False if it is none. */
STACKD_HANDLER static bool read_method(const struct walk* walk, uint64_t method, uint64_t* code, uint32_t* code_bytes) {
  const struct layout* layout = walk->layout;
  uint64_t const_method;
  if (!stackd_managed_read(walk->thread, method + layout->method_const_method, &const_method, sizeof(const_method)) ||
      !is_object(const_method)) {
    return false;
  }
  uint64_t block[MAX_CONST_METHOD_BYTES / 8];
  if (!stackd_managed_read(walk->thread, const_method, block, layout->const_method_bytes)) return false;
  const char* bytes = (const char*)block;
  uint64_t constants = *(const uint64_t*)(bytes + layout->const_method_constants);
  uint64_t whole_bytes = 8ull * *(const uint32_t*)(bytes + layout->const_method_size);
  *code_bytes = *(const uint16_t*)(bytes + layout->const_method_code_size);
  *code = const_method + layout->const_method_bytes;
  return is_object(constants) && whole_bytes >= layout->const_method_bytes + *code_bytes;
}

/* Whether the words around `word` are those of an interpreted frame whose frame pointer is `fp`. */
STACKD_HANDLER static bool may_be_frame(const struct walk* walk, const uint64_t* word, uint64_t fp) {
  uint64_t method = word[METHOD], sender_sp = word[SENDER_SP];
  uint64_t stack_bytes = walk->thread->stack_end - walk->thread->stack_start;
  return word[RETURN_ADDRESS] - walk->code_low < walk->code_high - walk->code_low && is_object(method) &&
         method - walk->thread->stack_start >= stack_bytes && sender_sp % 8 == 0 && sender_sp >= fp + 16 &&
         sender_sp - fp < MAX_ARGUMENTS_BYTES;
}

/* Where in its method's code a frame is; not below `code_bytes` if nowhere. */
STACKD_HANDLER static uint64_t bytecode_index(const struct walk* walk, const uint64_t* word, uint64_t fp, uint64_t code,
                                              uint32_t code_bytes) {
  uint64_t in_register = walk->thread->regs[REG_BYTECODE] - code;
  if (fp == walk->thread->regs[STACKD_REG_RBP] && in_register < code_bytes) return in_register;
  if (walk->layout->code_heap == 0) return word[BYTECODE] - code;
  /* While it collects, release 8 has the index there itself (frame::gc_prologue). */
  return word[BYTECODE_8] < code_bytes ? word[BYTECODE_8] : word[BYTECODE_8] - code;
}

STACKD_HANDLER static void look_at(struct walk* walk, const uint64_t* word, uint64_t fp) {
  if (!may_be_frame(walk, word, fp)) return;
  uint64_t code;
  uint32_t code_bytes;
  if (!read_method(walk, word[METHOD], &code, &code_bytes)) return;
  int64_t position = -1;
  if (code_bytes != 0) {
    uint64_t index = bytecode_index(walk, word, fp, code, code_bytes);
    if (index >= code_bytes) return;
    position = (int64_t)index;
  }
  if (walk->frames++ == 0) stackd_managed_begin(walk->writer, STACKD_RUNTIME_HOTSPOT, 0, STACKD_WALK_WHOLE, 0, 0);
  stackd_managed_frame(walk->writer, 0, fp, word[METHOD], position);
}

STACKD_HANDLER static bool read_code_bounds(struct walk* walk) {
  const struct layout* layout = walk->layout;
  uint64_t heap = 0;
  if (layout->code_heap != 0 && (!stackd_managed_read(walk->thread, layout->code_heap, &heap, sizeof(heap)) || heap == 0)) {
    return false;
  }
  return stackd_managed_read(walk->thread, heap + layout->code_low, &walk->code_low, sizeof(walk->code_low)) &&
         stackd_managed_read(walk->thread, heap + layout->code_high, &walk->code_high, sizeof(walk->code_high)) &&
         walk->code_low < walk->code_high;
}

void stackd_hotspot_walk(struct stackd_managed_writer* writer, const struct stackd_managed_thread* thread) {
  const struct layout* layout = __atomic_load_n(&published, __ATOMIC_ACQUIRE);
  if (layout == NULL || thread->stack_end <= thread->stack_start) return;
  struct walk walk = {layout, thread, writer, 0, 0, 0};
  if (!read_code_bounds(&walk)) return;
  uint64_t start = thread->stack_start & ~7ull, end = thread->stack_end & ~7ull;
  int32_t status = STACKD_WALK_WHOLE;
  if (end - start > MAX_STACK_BYTES) {
    end = start + MAX_STACK_BYTES;
    status = STACKD_WALK_LIMIT;
  }
  uint64_t window[WINDOW_WORDS];
  const uint32_t before = -BYTECODE, behind = RETURN_ADDRESS;
  while (end - start >= 8ull * (before + 1 + behind)) {
    uint64_t left = (end - start) / 8;
    uint32_t words = left < WINDOW_WORDS ? (uint32_t)left : WINDOW_WORDS;
    if (!stackd_managed_read(thread, start, window, 8 * words)) {
      status = STACKD_WALK_UNREADABLE;
      break;
    }
    uint32_t last = words - behind;
    for (uint32_t i = before; i < last && walk.frames < MAX_FRAMES; i++) look_at(&walk, window + i, start + 8ull * i);
    if (walk.frames >= MAX_FRAMES) {
      status = STACKD_WALK_LIMIT;
      break;
    }
    start += 8ull * (last - before);
  }
  if (status != STACKD_WALK_WHOLE && walk.frames != 0) {
    stackd_managed_begin(writer, STACKD_RUNTIME_HOTSPOT, 0, status, 0, 0);
  }
}
