/* What the finder of a Ruby learns for the walk. */
#ifndef STACKD_RUBY_WALK_H_
#define STACKD_RUBY_WALK_H_

#include "agent/maps/loaded_object.h"
#include "agent/runtimes/ruby/ruby_layout.h"
#include "agent/sys/syscalls.h"

/* Where a thread has its execution context: a pointer in thread-local storage. */
struct stackd_ruby_context_place {
  uint64_t module; /* index in the thread's table of modules; 0: the place lies at `offset` from the thread's fs base */
  int64_t offset;
};

struct stackd_ruby {
  const struct stackd_ruby_layout* layout; /* NULL: an unknown version or build */
  uint32_t version;                        /* 30102 for 3.1.2; 0: not known */
  struct stackd_ruby_context_place place;
  struct stackd_loaded_symbol interpreter; /* rb_vm_exec(), which only 3.1 and 3.2 export */
};

/* The one that was found, or NULL. SIGNAL-SAFE. */
const struct stackd_ruby* stackd_ruby_found(void) STACKD_HANDLER;

#endif /* STACKD_RUBY_WALK_H_ */
