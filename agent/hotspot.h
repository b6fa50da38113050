/* Interpreted frames of Java on a thread (managed.h): HotSpot 11 and later. */
#ifndef STACKD_HOTSPOT_H_
#define STACKD_HOTSPOT_H_

#include "agent/loaded_object.h"
#include "agent/managed.h"

/* If `object` is a libjvm, and none was found before: learns what the walk must know. NOT SIGNAL-SAFE. */
void stackd_hotspot_find(const struct stackd_loaded_object* object);

/* Every interpreted frame on the stack, and perhaps what is left of some that have ended: the daemon, which unwinds the
 * stack, takes those that it meets. Compiled frames need nothing from here: their return addresses say all. The anchor is
 * the frame pointer, the key the address of the Method, the position its bytecode index, or -1 of a native method. A stack
 * that is too long, or cannot be read to its end, is followed by a RUNTIME entry without frames that says so.
 * SIGNAL-SAFE. */
void stackd_hotspot_walk(struct stackd_managed_writer* writer, const struct stackd_managed_thread* thread) STACKD_HANDLER;

#endif /* STACKD_HOTSPOT_H_ */
