/* Where the program's heartbeats (stackd/agent.h) lie: one page at an address that never changes, made when the first is
 * registered. While there is a ring, its memory is that of the second page of the ring's header (ring_abi.h), so that the
 * daemon sees each beat. Otherwise it is the agent's own. NOT SIGNAL-SAFE. */
#ifndef STACKD_HEARTBEAT_H_
#define STACKD_HEARTBEAT_H_

#include <stdbool.h>

#include "stackd/ring_abi.h"

/* The cells of a ring that is mapped from now on, or NULL before it is unmapped. Heartbeats go on as they are: none is
 * lost, none that is suspended wakes up. Where memory is lacking they are not watched. */
void stackd_heartbeat_set_ring(struct stackd_heartbeat_cell* cells);

/* Whether any is registered. */
bool stackd_heartbeat_is_any(void);

/* From now on the child of a fork gets a page of its own, with all heartbeats suspended. Fork handlers that are registered
 * later find that done. */
void stackd_heartbeat_watch_forks(void);

#endif /* STACKD_HEARTBEAT_H_ */
