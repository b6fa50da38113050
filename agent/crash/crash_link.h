/* The daemon as the crash handler knows it: the ring and socket of the connection, and a file for what no daemon takes. And
 * whether the helper has looked for a daemon yet. */
#ifndef STACKD_CRASH_LINK_H_
#define STACKD_CRASH_LINK_H_

#include <stdbool.h>
#include <stdint.h>

#include "agent/ring/ring_writer.h"
#include "agent/sys/private_fd.h"

/* What the handler needs of a connection to the daemon. */
struct stackd_crash_link {
  const struct stackd_ring* ring;
  struct stackd_own_fd socket;
};

/* Crashes from now on are told to this daemon, or to none if NULL. `link` and its ring must stay valid until
 * stackd_crash_is_using_link() says no. Helper thread only. */
void stackd_crash_set_link(const struct stackd_crash_link* link);
bool stackd_crash_is_using_link(void);

/* The file of a daemon's for a crash that no daemon takes. It outlives the connection: a process may not be able to make
 * one itself. `spool` and its fd must stay valid as a link must. Helper thread only. */
void stackd_crash_set_spool(const struct stackd_own_fd* spool);

/* Has the helper started, if it may be (helper/life.c). SIGNAL-SAFE. */
void stackd_crash_start_helper(void) STACKD_HANDLER;

/* Called once the helper has found a daemon, or that there is none. A thread that crashes before waits for that, since most
 * programs that crash at their start do so before the helper can register them. Helper thread, or the thread that failed to
 * start it. */
void stackd_crash_helper_has_tried(void) STACKD_HANDLER;

/* The helper leaves: a thread that crashes is to start it again. Helper thread only. */
void stackd_crash_helper_leaves(void);

/* Has the helper started, and waits for stackd_crash_helper_has_tried(), so long at most. SIGNAL-SAFE. */
void stackd_crash_await_helper(uint64_t duration_ns) STACKD_HANDLER;

/* Waits, so long at most, until a daemon that is there has this process and knows what is mapped in it. Not for handlers.
 */
void stackd_crash_make_known(uint64_t duration_ns);

/* In the child of a fork. */
void stackd_crash_link_reset_after_fork(void);

/* --- For the crash handler: HANDLER ONLY --- */

/* A daemon that dies is noticed after so long. */
#define STACKD_CRASH_LOOK_NS 10000000ull

/* Returns the link, or NULL, which stays valid until it is released. */
const struct stackd_crash_link* stackd_crash_link_acquire(void) STACKD_HANDLER;
void stackd_crash_link_release(void) STACKD_HANDLER;

/* Returns the fd of the daemon's file, < 0: none. To be used while a link is acquired. */
int stackd_crash_spool_fd(void) STACKD_HANDLER;

/* Sends a message that is a header alone. False if the daemon cannot know of it. */
bool stackd_crash_link_tell(const struct stackd_crash_link* link, uint32_t type) STACKD_HANDLER;

/* Whether the daemon has ended the connection, or the program has closed it. */
bool stackd_crash_link_is_over(const struct stackd_crash_link* link) STACKD_HANDLER;

/* Has the daemon load what is mapped, unless it has: once in the life of a process. */
void stackd_crash_have_modules_loaded(const struct stackd_crash_link* link) STACKD_HANDLER;

#endif /* STACKD_CRASH_LINK_H_ */
