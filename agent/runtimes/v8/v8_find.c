/* NOT SIGNAL-SAFE, but for stackd_v8_found. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "agent/runtimes/v8/v8.h"
#include "agent/sys/syscalls.h"
#include "agent/sys/target.h"
#include "agent/sys/text.h"

/* glibc's struct pthread: the first 32 keys' data, a pair of words each, the second of which is the value. Tried out before
 * it is believed (stackd_v8_prepare). */
#define KEYS_DATA_BYTES 0x310u
#define KEYS_IN_FIRST_BLOCK 32u

#define CODE_BYTES 96u
#define LONGEST_LOAD_BYTES 12u

/* What the v8dbg constants do not tell: offsets in an Isolate, in a BytecodeArray and in Code.
 *
 * Source: the processes themselves, of node 18.20.8, 20.20.2, 22.23.3 and 24.21.0, blocked in a call from JavaScript.
 * `isolate_self` is where the isolate points at itself, `c_entry_fp` the one word that points at the exit frame on the
 * stack. `js_entry_sp` is the one that points at the outermost entry frame; `handler` lies in front of it. The order of the
 * fields is that of ThreadLocalTop and IsolateData in V8's src/execution/thread-local-top.h and isolate-data.h.
 *
 * For what is in Code, functions were optimized by %OptimizeFunctionOnNextCall, and %DebugPrint told where they
 * and their Code lie. The one word of the isolate that points at the dispatch table is among its external references. The
 * numbers of the entries are those of DeoptimizationData in src/objects/deoptimization-data.h (before: code.h). */
static const struct known_version {
  uint16_t major, minor;
  uint32_t isolate_self, c_entry_fp, handler, js_entry_sp, fast_call_fp, bytecode_positions;
  uint32_t function_code, dispatch_table;
  uint32_t code_deopt, code_positions, code_start, code_size, code_bytes, deopt_literals, deopt_inlining;
} known_versions[] = {
    {10, 2, 17608, 17720, 17728, 17752, 256, 32, 48, 0, 16, 24, 0, 40, 128, 2, 7},
    {11, 3, 272, 384, 392, 416, 232, 32, 48, 0, 16, 24, 40, 56, 0, 2, 7},
    {12, 4, 368, 272, 408, 424, 240, 24, 24, 0, 8, 16, 40, 52, 0, 2, 7},
    {13, 6, 416, 320, 456, 472, 280, 24, 24, 12120, 8, 16, 40, 56, 0, 3, 8},
};

static const struct stackd_v8_layout* _Atomic found;

STACKD_HANDLER const struct stackd_v8_layout* stackd_v8_found(void) {
  return atomic_load_explicit(&found, memory_order_acquire);
}

static bool read_at(uint64_t address, void* out, size_t size_bytes) {
  return stackd_read_memory(stackd_target_pid(), address, out, size_bytes) == (long)size_bytes;
}

static bool variable(const struct stackd_loaded_object* object, const char* name, int32_t* value) {
  uint64_t address = stackd_loaded_symbol(object, name).address;
  return address != 0 && read_at(address, value, sizeof(*value));
}

/* The constant with the first of these names, up to a NULL, that there is. False if there is none, or it is too large. */
static bool constant(const struct stackd_loaded_object* object, const char* const* names, int32_t limit, uint32_t* value) {
  for (; *names != NULL; names++) {
    char full[128];
    struct stackd_text text = stackd_text_in(full, sizeof(full));
    stackd_put(&text, "v8dbg_");
    stackd_put(&text, *names);
    int32_t read;
    if (!variable(object, full, &read)) continue;
    *value = (uint32_t)read;
    return read >= 0 && read <= limit;
  }
  return false;
}

/* Finds a field's offset. The constant's name tells the field's type, which changes from version to version. */
static bool offset(const struct stackd_loaded_object* object, uint32_t* value, const char* name, const char* second,
                   const char* third) {
  const char* names[] = {name, second, third, NULL};
  return constant(object, names, 64, value);
}

static bool type(const struct stackd_loaded_object* object, uint16_t* value, const char* name) {
  const char* names[] = {name, NULL};
  uint32_t wide;
  if (!constant(object, names, UINT16_MAX, &wide)) return false;
  *value = (uint16_t)wide;
  return true;
}

/* The walk relies on these as they are in every version so far. */
static bool frames_are_as_ever(const struct stackd_loaded_object* object) {
  static const struct {
    const char* name;
    int32_t value;
  } expected[] = {
      {"v8dbg_off_fp_function", -16},
      {"v8dbg_off_fp_context", -8},
      {"v8dbg_off_fp_bytecode_array", -32},
      {"v8dbg_frametype_EntryFrame", 1},
      {"v8dbg_frametype_ConstructEntryFrame", 2},
      {"v8dbg_off_fp_bytecode_offset", -40},
      {"v8dbg_HeapObjectTag", 1},
      {"v8dbg_HeapObjectTagMask", 3},
      {"v8dbg_SmiValueShift", 1},
      {"v8dbg_SmiShiftSize", 31},
      {"v8dbg_StringRepresentationMask", 7},
      {"v8dbg_SeqStringTag", 0},
      {"v8dbg_ConsStringTag", 1},
      {"v8dbg_ExternalStringTag", 2},
      {"v8dbg_SlicedStringTag", 3},
      {"v8dbg_ThinStringTag", 5},
      {"v8dbg_StringEncodingMask", 8},
      {"v8dbg_OneByteStringTag", 8},
      {"v8dbg_class_String__length__int32_t", 12},
      {"v8dbg_class_SeqOneByteString__chars__char", 16},
      {"v8dbg_class_ConsString__first__String", 16},
      {"v8dbg_class_ConsString__second__String", 24},
      {"v8dbg_class_SlicedString__parent__String", 16},
      {"v8dbg_class_SlicedString__offset__SMI", 24},
      {"v8dbg_class_ThinString__actual__String", 16},
  };
  for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
    int32_t value;
    if (!variable(object, expected[i].name, &value) || value != expected[i].value) return false;
  }
  return true;
}

static bool read_constants(const struct stackd_loaded_object* object, struct stackd_v8_layout* to) {
  struct stackd_v8_types* types = &to->type;
  if (!frames_are_as_ever(object)) return false;
  if (!offset(object, &to->map_type, "class_Map__instance_type__uint16_t", NULL, NULL) ||
      !offset(object, &to->function_shared, "class_JSFunction__shared__SharedFunctionInfo", NULL, NULL) ||
      !offset(object, &to->shared_name, "class_SharedFunctionInfo__name_or_scope_info__Object",
              "class_SharedFunctionInfo__name_or_scope_info__Tagged_Object_",
              "class_SharedFunctionInfo__name_or_scope_info__Tagged_NameOrScopeInfoT_") ||
      !offset(object, &to->shared_script, "class_SharedFunctionInfo__script_or_debug_info__HeapObject",
              "class_SharedFunctionInfo__raw_script__Tagged_Object_",
              "class_SharedFunctionInfo__script__Tagged_HeapObject_") ||
      !offset(object, &to->script_name, "class_Script__name__Object", NULL, NULL) ||
      !offset(object, &to->script_source, "class_Script__source__Object", NULL, NULL) ||
      !offset(object, &to->scope_locals, "scopeinfo_idx_ncontextlocals", NULL, NULL) ||
      !offset(object, &to->scope_first, "scopeinfo_idx_first_vars", NULL, NULL)) {
    return false;
  }
  if (!offset(object, &to->bytecode_first, "class_BytecodeArray__data__uintptr_t", NULL, NULL)) return false;
  /* These two count words behind the map. */
  to->scope_locals = 8 + 8 * to->scope_locals;
  to->scope_first = 8 + 8 * to->scope_first;
  if (!type(object, &types->first_function, "type_JSFunction__JS_FUNCTION_TYPE") ||
      !type(object, &types->shared, "type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE") ||
      !type(object, &types->script, "type_Script__SCRIPT_TYPE") ||
      !type(object, &types->debug_info, "type_DebugInfo__DEBUG_INFO_TYPE") ||
      !type(object, &types->scope_info, "type_ScopeInfo__SCOPE_INFO_TYPE") ||
      !type(object, &types->bytecode_array, "type_BytecodeArray__BYTECODE_ARRAY_TYPE") ||
      !type(object, &types->first_nonstring, "FirstNonstringType")) {
    return false;
  }
  if (!type(object, &types->byte_array, "type_ByteArray__BYTE_ARRAY_TYPE")) return false;
  if (!type(object, &types->trusted_byte_array, "type_TrustedByteArray__TRUSTED_BYTE_ARRAY_TYPE"))
    types->trusted_byte_array = 0;
  if (!type(object, &types->code, "type_Code__CODE_TYPE")) return false;
  static const char* const fixed_arrays[] = {"type_FixedArray__FIXED_ARRAY_TYPE",
                                             "type_TrustedFixedArray__TRUSTED_FIXED_ARRAY_TYPE",
                                             "type_ProtectedFixedArray__PROTECTED_FIXED_ARRAY_TYPE"};
  for (size_t i = 0; i < sizeof(fixed_arrays) / sizeof(fixed_arrays[0]); i++) {
    if (!type(object, &types->fixed_arrays[i], fixed_arrays[i])) types->fixed_arrays[i] = 0;
  }
  /* Its subclasses (constructors of Array, Promise, classes, typed arrays) have the numbers behind it: 18 to 20 of them. */
  types->last_function = types->first_function + 20;
  return true;
}

static bool is_word(uint32_t offset, uint32_t words) { return offset % 8 == 0 && offset < 8 * words; }

static bool makes_sense(const struct stackd_v8_layout* it) {
  return is_word(it->function_shared, STACKD_V8_FUNCTION_WORDS) && is_word(it->shared_name, STACKD_V8_SHARED_WORDS) &&
         is_word(it->shared_script, STACKD_V8_SHARED_WORDS) && is_word(it->script_name, STACKD_V8_SCRIPT_WORDS) &&
         is_word(it->script_source, STACKD_V8_SCRIPT_WORDS) && is_word(it->bytecode_positions, STACKD_V8_BYTECODES_WORDS);
}

static bool apply_version(struct stackd_v8_layout* to) {
  for (size_t i = 0; i < sizeof(known_versions) / sizeof(known_versions[0]); i++) {
    const struct known_version* known = &known_versions[i];
    if (to->version >> 32 != ((uint64_t)known->major << 16 | known->minor)) continue;
    to->isolate_self = known->isolate_self;
    to->c_entry_fp = known->c_entry_fp;
    to->handler = known->handler;
    to->js_entry_sp = known->js_entry_sp;
    to->fast_call_fp = known->fast_call_fp;
    to->bytecode_positions = known->bytecode_positions;
    to->function_code = known->function_code;
    to->dispatch_table = known->dispatch_table;
    to->code_deopt = known->code_deopt;
    to->code_positions = known->code_positions;
    to->code_start = known->code_start;
    to->code_size = known->code_size;
    to->code_bytes = known->code_bytes;
    to->deopt_literals = known->deopt_literals;
    to->deopt_inlining = known->deopt_inlining;
    to->bytecodes = stackd_v8_bytecodes(known->major, known->minor);
    return true;
  }
  return false;
}

/* Whether a key's data is where KEYS_DATA_BYTES says. */
static bool finds_keys_data;

void stackd_v8_prepare(void) {
  pthread_key_t key;
  static const char mark;
  if (pthread_key_create(&key, NULL) != 0) return;
  uint64_t self = stackd_fs_base();
  if (key < KEYS_IN_FIRST_BLOCK && self != 0 && pthread_setspecific(key, &mark) == 0) {
    /* In place: each start of a program comes by, and a filter of system calls may know process_vm_readv(). */
    uint64_t at = self + KEYS_DATA_BYTES + 16ull * key + 8;
    finds_keys_data = stackd_is_readable(at) && *(const void* const*)at == &mark;
  }
  pthread_key_delete(key);
}

/* The load of a thread-local word, as the compiler makes it, in the code of v8::Isolate::TryGetCurrent. */
static bool find_thread_local(uint64_t address, const uint8_t* code, int64_t* from_thread) {
  static const uint8_t direct[] = {0x64, 0x48, 0x8b, 0x04, 0x25};    /* mov %fs:disp32, %rax */
  static const uint8_t by_table[] = {0x48, 0x8b, 0x05};              /* mov disp32(%rip), %rax */
  static const uint8_t then_load[] = {0x64, 0x48, 0x8b, 0x00, 0xc3}; /* mov %fs:(%rax), %rax; ret */
  for (size_t i = 0; i + LONGEST_LOAD_BYTES <= CODE_BYTES; i++) {
    int32_t displacement;
    if (memcmp(code + i, direct, sizeof(direct)) == 0 && code[i + sizeof(direct) + 4] == 0xc3) {
      memcpy(&displacement, code + i + sizeof(direct), 4);
      *from_thread = displacement;
      return true;
    }
    if (memcmp(code + i, by_table, sizeof(by_table)) == 0 && memcmp(code + i + 7, then_load, sizeof(then_load)) == 0) {
      memcpy(&displacement, code + i + sizeof(by_table), 4);
      return read_at(address + i + 7 + (uint64_t)(int64_t)displacement, from_thread, sizeof(*from_thread));
    }
  }
  return false;
}

static bool find_isolate(const struct stackd_loaded_object* object, struct stackd_v8_layout* to) {
  to->isolate_key = stackd_loaded_symbol(object, "_ZN2v88internal7Isolate12isolate_key_E").address;
  if (to->isolate_key != 0) {
    to->isolate_from_thread = KEYS_DATA_BYTES + 8;
    return finds_keys_data;
  }
  uint8_t code[CODE_BYTES];
  uint64_t address = stackd_loaded_symbol(object, "_ZN2v87Isolate13TryGetCurrentEv").address;
  return address != 0 && read_at(address, code, sizeof(code)) &&
         find_thread_local(address, code, &to->isolate_from_thread) &&
         to->isolate_from_thread != 0; /* 0: not relocated yet */
}

static bool read_version(const struct stackd_loaded_object* object, uint64_t* version) {
  int32_t major, minor, build, patch;
  if (!variable(object, "_ZN2v88internal7Version6major_E", &major) ||
      !variable(object, "_ZN2v88internal7Version6minor_E", &minor) ||
      !variable(object, "_ZN2v88internal7Version6build_E", &build) ||
      !variable(object, "_ZN2v88internal7Version6patch_E", &patch)) {
    return false;
  }
  *version =
      (uint64_t)(uint16_t)major << 48 | (uint64_t)(uint16_t)minor << 32 | (uint64_t)(uint16_t)build << 16 | (uint16_t)patch;
  return true;
}

void stackd_v8_find(const struct stackd_loaded_object* object) {
  /* A handler may be reading the one that was found before. */
  static struct stackd_v8_layout layouts[2];
  const struct stackd_v8_layout* before = stackd_v8_found();
  if (before != NULL && before->known) return;
  struct stackd_v8_layout* layout = before == &layouts[0] ? &layouts[1] : &layouts[0];
  if (!read_version(object, &layout->version)) return;
  layout->known =
      apply_version(layout) && read_constants(object, layout) && makes_sense(layout) && find_isolate(object, layout);
  if (!layout->known) stackd_managed_look_again();
  atomic_store_explicit(&found, layout, memory_order_release);
  stackd_managed_has_found(/*needs_memory=*/true);
}
