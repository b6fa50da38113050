/* The frames of PHP's functions on a thread (walker.h): builds without thread safety, as Debian's are. */
#ifndef STACKD_PHP_H_
#define STACKD_PHP_H_

#include "agent/maps/loaded_object.h"
#include "agent/runtimes/walker.h"

/* If `object` has a PHP in it, and none was found before: learns what the walk must know. NOT SIGNAL-SAFE. */
void stackd_php_find(const struct stackd_loaded_object* object);

/* Writes the frames innermost first, a BOUNDARY behind each call of the interpreter's function; stackd/php_trace.h says
 * what else they mean. SIGNAL-SAFE. */
void stackd_php_walk(struct stackd_managed_writer* writer, const struct stackd_managed_thread* thread) STACKD_HANDLER;

#endif /* STACKD_PHP_H_ */
