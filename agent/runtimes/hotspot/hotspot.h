/* Interpreted frames of Java on a thread (walker.h): HotSpot 8 and later. */
#ifndef STACKD_HOTSPOT_H_
#define STACKD_HOTSPOT_H_

#include <stdbool.h>
#include <stdint.h>

#include "agent/maps/loaded_object.h"
#include "agent/runtimes/walker.h"

/* If `object` is a libjvm, and none was found before: learns what the walk must know. If it is the VM's library of sockets:
 * where it waits for a connection. NOT SIGNAL-SAFE. */
void stackd_hotspot_find(const struct stackd_loaded_object* object);

/* Whether the process has a VM, whose names the daemon reads out of memory. Any thread. */
bool stackd_hotspot_is_here(void);

/* Whether a thread that sleeps in `call` is in an accept() of ServerSocket that must not be interrupted. When a signal ends
 * its poll(), accept() takes that for its timeout. That is so in releases 11 and 12. In 8, and in a later one that is told
 * to use the old sockets, the code has the same name. If so, this is the frame pointer of the function that accept() has
 * called, else 0. NOT SIGNAL-SAFE. */
uint64_t stackd_hotspot_frame_below_accept(const struct stackd_syscall* call, uint64_t rsp);
/* Whether the process has that code at all. NOT SIGNAL-SAFE. */
bool stackd_hotspot_has_accept(void);

/* Every interpreted frame on the stack, and perhaps what is left of some that have ended. The daemon, which unwinds the
 * stack, takes those that it meets. Compiled frames need nothing from here: their return addresses say all. The anchor is
 * the frame pointer, the key the address of the Method, the position its bytecode index, or -1 of a native method. A stack
 * that is too long, or cannot be read to its end, is followed by a RUNTIME entry without frames that says so.
 * SIGNAL-SAFE. */
void stackd_hotspot_walk(struct stackd_managed_writer* writer, const struct stackd_managed_thread* thread) STACKD_HANDLER;

#endif /* STACKD_HOTSPOT_H_ */
