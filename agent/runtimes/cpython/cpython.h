/* The frames of CPython's functions on a thread (walker.h): 3.8 and later. */
#ifndef STACKD_CPYTHON_H_
#define STACKD_CPYTHON_H_

#include "agent/maps/loaded_object.h"
#include "agent/runtimes/walker.h"

/* If `object` has a CPython in it, and none was found before: learns what the walk must know. NOT SIGNAL-SAFE. */
void stackd_cpython_find(const struct stackd_loaded_object* object);

/* Innermost first, a BOUNDARY behind each activation of the interpreter's function whose place on the C stack is known.
 * A key is the address of a code object, a position counts bytes in its code. A walk that does not end well is followed by
 * another RUNTIME entry, without frames, that says so. SIGNAL-SAFE. */
void stackd_cpython_walk(struct stackd_managed_writer* writer, const struct stackd_managed_thread* thread) STACKD_HANDLER;

#endif /* STACKD_CPYTHON_H_ */
