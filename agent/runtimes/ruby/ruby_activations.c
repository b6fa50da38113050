#include "agent/runtimes/ruby/ruby_activations.h"

#include <stddef.h>

#define MAX_TAGS 4096u
/* No stack is so large. */
#define MAX_DISTANCE (64u << 20)

/* struct rb_vm_tag: the buffer lies in front of the link to the tag before. That of __builtin_setjmp() has five words, the
 * second is a place in code. That of glibc's has 25, the eighth is such a place, disguised (PTR_MANGLE). Which of the two a
 * Ruby has was decided when it was built. */
enum { COMPILER_PLACE = 3, COMPILER_PREVIOUS = 7, LIBRARY_PLACE = 9, LIBRARY_PREVIOUS = 27, TAG_WORDS = 28 };
#define GUARD_OF_THREAD 0x30u
#define GUARD_ROTATION 17

struct tag {
  uint64_t place;
  uint64_t previous; /* lies above */
};

STACKD_HANDLER static bool read_tag(const struct stackd_ruby_tags* tags, uint64_t address, struct tag* out) {
  uint64_t words[TAG_WORDS];
  uint32_t size_bytes = 8 * (tags->is_of_compiler ? COMPILER_PREVIOUS + 1 : TAG_WORDS);
  if (!stackd_managed_read_still(tags->thread, address, words, size_bytes)) return false;
  out->place = words[COMPILER_PLACE];
  out->previous = words[COMPILER_PREVIOUS];
  if (!tags->is_of_compiler) {
    uint64_t disguised = words[LIBRARY_PLACE];
    out->place = (disguised >> GUARD_ROTATION | disguised << (64 - GUARD_ROTATION)) ^ tags->guard;
    out->previous = words[LIBRARY_PREVIOUS];
  }
  return out->previous == 0 || (out->previous > address && out->previous - address < MAX_DISTANCE);
}

uint64_t stackd_ruby_next_activation(struct stackd_ruby_tags* tags) {
  struct tag tag;
  for (uint32_t i = 0; i < MAX_TAGS && tags->next != 0; i++) {
    uint64_t address = tags->next;
    if (!read_tag(tags, address, &tag)) return 0;
    tags->next = tag.previous;
    if (tag.place == tags->place) return address;
  }
  return 0;
}

/* The outermost tag is that of the function that begins the program, a thread or a fiber. That calls the interpreter, if it
 * does not call C. False if the tags do not hang together. */
STACKD_HANDLER static bool find_interpreter(struct stackd_ruby_tags* tags, const struct stackd_loaded_symbol* interpreter,
                                            uint64_t first) {
  struct tag tag;
  uint64_t last = 0;
  tags->place = 0;
  for (uint32_t i = 0; i < MAX_TAGS && first != 0; i++) {
    if (!read_tag(tags, first, &tag)) return false;
    if (interpreter->address == 0) {
      tags->place = last;
    } else if (tag.place - interpreter->address < interpreter->size_bytes) {
      tags->place = tag.place;
    }
    last = tag.place;
    first = tag.previous;
  }
  return first == 0 && tags->place != 0;
}

bool stackd_ruby_tags_begin(struct stackd_ruby_tags* tags, const struct stackd_managed_thread* thread,
                            const struct stackd_loaded_symbol* interpreter, uint64_t first, uint32_t activations) {
  tags->thread = thread;
  if (!stackd_managed_read(thread, thread->thread_self + GUARD_OF_THREAD, &tags->guard, sizeof(tags->guard))) return false;
  for (int way = 0; way < 2; way++) {
    uint32_t found = 0;
    tags->is_of_compiler = way == 0;
    if (!find_interpreter(tags, interpreter, first)) continue;
    tags->next = first;
    while (found <= activations && stackd_ruby_next_activation(tags) != 0) found++;
    tags->next = first;
    if (found == activations) return true;
  }
  return false;
}
