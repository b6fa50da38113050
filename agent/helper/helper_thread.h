/* The agent's one thread: keeps the connection, opens files for the daemon, runs dumps. It blocks all signals and sleeps in
 * recvmsg until there is something to do. */
#ifndef STACKD_HELPER_THREAD_H_
#define STACKD_HELPER_THREAD_H_

#include <stdbool.h>

#include "agent/helper/process.h"
#include "stackd/agent.h"

/* Starts the thread. `settings` and `files` must stay. `after_fork`: waits a moment before it registers, since most
 * children exec at once. 0 or a negative errno. */
int stackd_helper_start(const struct stackd_settings* settings, struct stackd_process_files* files, bool after_fork);

/* The C library's count of threads, from which the helper is to be taken off: a process ends when its last thread does, and
 * the helper never does. Before stackd_helper_start(). */
void stackd_helper_hide_from(unsigned* thread_count);

/* In the child of a fork, before it starts a helper of its own. */
void stackd_helper_reset_after_fork(void);

/* At most 63 bytes; tells the daemon if there is one. Any thread. */
void stackd_helper_set_name(const char* name);

/* Tells the daemon if there is one. Any thread. */
void stackd_helper_set_task_source(stackd_task_source_fn* source);

/* Any thread: asks the daemon for a dump, of a crash by an exception of this type unless that is ""; waits until one that
 * began after the call is over. 0, -ENOTCONN or -ETIMEDOUT. */
int stackd_helper_request_dump(const char* exception_type, int timeout_ms);

#endif /* STACKD_HELPER_THREAD_H_ */
