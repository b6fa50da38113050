/* Where on the C stack the calls of Ruby's interpreter lie: each has a tag there (struct rb_vm_tag), by which exceptions
 * find it. Other functions in C that catch exceptions have tags too. */
#ifndef STACKD_RUBY_ACTIVATIONS_H_
#define STACKD_RUBY_ACTIVATIONS_H_

#include "agent/maps/loaded_object.h"
#include "agent/runtimes/walker.h"

/* The tags of a thread or fiber, innermost first. */
struct stackd_ruby_tags {
  const struct stackd_managed_thread* thread;
  uint64_t next;
  uint64_t guard;      /* of glibc's setjmp() */
  uint64_t place;      /* in the interpreter's function: where its tags lead to */
  bool is_of_compiler; /* they were made by __builtin_setjmp() */
};

/* Begins with the tag at `first`, of a thread in so many calls of the interpreter. False, and there are no anchors, unless
 * as many tags are of the interpreter's function. They are not where the thread is about to call it or to return from it,
 * or where tags are made in an unknown way. `interpreter` is its function, with address 0 if it has no name. SIGNAL-SAFE.
 */
bool stackd_ruby_tags_begin(struct stackd_ruby_tags* tags, const struct stackd_managed_thread* thread,
                            const struct stackd_loaded_symbol* interpreter, uint64_t first,
                            uint32_t activations) STACKD_HANDLER;

/* An address in the native frame of the next call of the interpreter; 0: there is none. SIGNAL-SAFE. */
uint64_t stackd_ruby_next_activation(struct stackd_ruby_tags* tags) STACKD_HANDLER;

#endif /* STACKD_RUBY_ACTIVATIONS_H_ */
