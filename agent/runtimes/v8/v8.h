/* JavaScript functions on the stack of a thread that V8 runs on (Node.js 18 to 24). agent/README.md says how. */
#ifndef STACKD_V8_H_
#define STACKD_V8_H_

#include "agent/maps/loaded_object.h"
#include "agent/runtimes/v8/v8_layout.h"
#include "agent/runtimes/walker.h"

/* On a thread of the program's, before the rest: how the C library keeps what belongs to a thread. NOT SIGNAL-SAFE. */
void stackd_v8_prepare(void);

/* If `object` has V8 in it, and none was found before: learns what the walk must know. NOT SIGNAL-SAFE. */
void stackd_v8_find(const struct stackd_loaded_object* object);

/* Where things are in the V8 of this process; NULL: there is none. SIGNAL-SAFE. */
const struct stackd_v8_layout* stackd_v8_found(void) STACKD_HANDLER;

/* Writes the frames of the isolate that the thread is in, if it is in one. SIGNAL-SAFE. */
void stackd_v8_walk(struct stackd_managed_writer* writer, const struct stackd_managed_thread* thread) STACKD_HANDLER;

#endif /* STACKD_V8_H_ */
