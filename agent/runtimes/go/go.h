/* Whether Go's runtime is in this process. Its stacks are walked by the daemon, which reads goroutines in memory; so there
 * is no walker here. */
#ifndef STACKD_GO_H_
#define STACKD_GO_H_

#include <stdbool.h>

#include "agent/maps/loaded_object.h"

/* If `object` was linked by Go, notes it. NOT SIGNAL-SAFE. */
void stackd_go_find(const struct stackd_loaded_object* object);
/* Whether one was found. Helper thread, or the thread that stands in for it. */
bool stackd_go_is_here(void);

#endif /* STACKD_GO_H_ */
