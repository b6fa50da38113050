/* NOT SIGNAL-SAFE, but for stackd_ruby_found. */
#include <string.h>

#include "agent/runtimes/ruby/ruby.h"
#include "agent/runtimes/ruby/ruby_walk.h"
#include "agent/runtimes/version_text.h"
#include "agent/runtimes/walker.h"
#include "agent/sys/target.h"

#define CODE_BYTES 48u
#define LONGEST_LOAD_BYTES 16u

static const struct stackd_ruby* published;

STACKD_HANDLER const struct stackd_ruby* stackd_ruby_found(void) { return __atomic_load_n(&published, __ATOMIC_ACQUIRE); }

static bool read_at(uint64_t address, void* out, size_t size_bytes) {
  return stackd_read_memory(stackd_target_pid(), address, out, size_bytes) == (long)size_bytes;
}

static uint64_t after(uint64_t address, size_t bytes, int32_t displacement) {
  return address + bytes + (uint64_t)(int64_t)displacement;
}

static int32_t displacement_at(const uint8_t* code) {
  int32_t displacement;
  memcpy(&displacement, code, sizeof(displacement));
  return displacement;
}

/* One of the sequences that the psABI has for thread-local storage, as compiled or as the linker has relaxed it.
 * False: none begins here. A place that the loader has not relocated yet is 0. */
static bool is_place(uint64_t address, const uint8_t* code, struct stackd_ruby_context_place* place) {
  static const uint8_t general[] = {0x66, 0x48, 0x8d, 0x3d};      /* data16 lea disp32(%rip), %rdi */
  static const uint8_t by_table[] = {0x48, 0x8b, 0x05};           /* mov disp32(%rip), %rax */
  static const uint8_t then_load[] = {0x64, 0x48, 0x8b, 0x00};    /* mov %fs:(%rax), %rax */
  static const uint8_t direct[] = {0x64, 0x48, 0x8b, 0x04, 0x25}; /* mov %fs:disp32, %rax */
  static const uint8_t then_lea[] = {0x48, 0x8d, 0x80};           /* lea disp32(%rax), %rax */
  if (memcmp(code, general, sizeof(general)) == 0) {
    return read_at(after(address, 8, displacement_at(code + 4)), place, sizeof(*place));
  }
  place->module = 0;
  if (memcmp(code, by_table, sizeof(by_table)) == 0 && memcmp(code + 7, then_load, sizeof(then_load)) == 0) {
    return read_at(after(address, 7, displacement_at(code + 3)), &place->offset, sizeof(place->offset));
  }
  if (memcmp(code, direct, sizeof(direct)) != 0) return false;
  place->offset = displacement_at(code + 5);
  if (place->offset == 0 && memcmp(code + 9, then_lea, sizeof(then_lea)) == 0) place->offset = displacement_at(code + 12);
  return true;
}

/* The code of rb_thread_current() loads the context first. */
static bool find_place(uint64_t address, struct stackd_ruby_context_place* place) {
  uint8_t code[CODE_BYTES];
  if (!read_at(address, code, sizeof(code))) return false;
  for (size_t i = 0; i + LONGEST_LOAD_BYTES <= CODE_BYTES; i++) {
    if (is_place(address + i, code + i, place)) return place->module != 0 || place->offset != 0;
  }
  return false;
}

void stackd_ruby_find(const struct stackd_loaded_object* object) {
  /* A handler may be reading the one that was published. */
  static struct stackd_ruby finds[2];
  const struct stackd_ruby* before = __atomic_load_n(&published, __ATOMIC_RELAXED);
  if (before != NULL && before->layout != NULL) return;
  uint64_t version = stackd_loaded_symbol(object, "ruby_version").address;
  uint64_t current = stackd_loaded_symbol(object, "rb_thread_current").address;
  if (version == 0 || current == 0) return;
  struct stackd_ruby* found = before == &finds[0] ? &finds[1] : &finds[0];
  memset(found, 0, sizeof(*found));
  found->version = stackd_version_at(version);
  found->interpreter = stackd_loaded_symbol(object, "rb_vm_exec");
  if (find_place(current, &found->place))
    found->layout = stackd_ruby_layout(found->version / 10000, found->version / 100 % 100);
  if (found->layout == NULL) {
    stackd_managed_look_again();
  } else {
    stackd_page_copies_prepare();
  }
  __atomic_store_n(&published, found, __ATOMIC_RELEASE);
  stackd_managed_has_found(/*needs_memory=*/true);
}
