/* The frames of Ruby's methods and blocks on a thread (walker.h). */
#ifndef STACKD_RUBY_H_
#define STACKD_RUBY_H_

#include "agent/maps/loaded_object.h"
#include "agent/runtimes/walker.h"

/* If `object` has a Ruby in it, and none was found before: learns what the walk must know. NOT SIGNAL-SAFE. */
void stackd_ruby_find(const struct stackd_loaded_object* object);

/* Writes the frames of the fiber that the thread is in, innermost first, a BOUNDARY behind each that native code called.
 * Methods in C have none: their functions are native frames. stackd/ruby_trace.h says what entries mean. SIGNAL-SAFE. */
void stackd_ruby_walk(struct stackd_managed_writer* writer, const struct stackd_managed_thread* thread) STACKD_HANDLER;

#endif /* STACKD_RUBY_H_ */
