/* What threads of the program want of the daemon: a name, a dump of themselves. NOT SIGNAL-SAFE. */
#ifndef STACKD_REQUESTS_H_
#define STACKD_REQUESTS_H_

#include <stdbool.h>

#include "agent/sys/private_fd.h"
#include "stackd/agent.h"
#include "stackd/wire.h"

/* At most 63 bytes; tells the daemon if there is one. Any thread. */
void stackd_requests_set_name(const char* name);

/* Tells the daemon if there is one. Any thread. 0 or a negative errno. */
int stackd_requests_set_task_source(stackd_task_source_fn* source);

/* Asks the daemon for a dump, and waits until one that began after the call is over. With an `exception_type` that is not
 * "", the dump is that of a crash by such an exception. Any thread. 0, -ENOTCONN or -ETIMEDOUT. */
int stackd_requests_dump(const char* exception_type, int timeout_ms);

/* Tells the daemon, if there is one, that the program puts a filter of system calls on itself, and the helper runs no more.
 * With false: that it could not. SIGNAL-SAFE. */
void stackd_requests_say_filtered(bool filtered);

/* --- For the helper --- */

/* A HELLO with the name, which follows later names. It stays until the next but one is asked for: a thread that crashes may
 * be copying it. */
struct stackd_hello* stackd_requests_new_hello(void);

/* The socket by which requests go from now on; STACKD_NO_FD: none. */
void stackd_requests_go_by(struct stackd_own_fd socket);

/* A dump of all threads begins, is over; the daemon has read what it needs of the one that this process asked for. */
void stackd_requests_count_begin(void);
void stackd_requests_count_end(void);
void stackd_requests_count_read(void);

/* In the child of a fork. */
void stackd_requests_reset_after_fork(void);

#endif /* STACKD_REQUESTS_H_ */
