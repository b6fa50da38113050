/* The connection as the helper and a thread that stands in for it share it: one of them at a time (life.h). Each of these
 * functions is for that one. */
#ifndef STACKD_HELPER_STATE_H_
#define STACKD_HELPER_STATE_H_

#include <stdbool.h>

#include "agent/helper/connection.h"
#include "agent/helper/process.h"

extern struct stackd_helper_state {
  const struct stackd_settings* settings;
  struct stackd_process_files* files;
  bool has_bell;
  struct stackd_connection connection;
  /* With which a helper that is started again goes on. */
  enum { STACKD_NOT_CONNECTED, STACKD_INTRODUCED, STACKD_REGISTERED } stage;
  bool memory_is_passed; /* on this connection, by HELLO or MEMORY */
} stackd_helper;

/* Connects to the daemon, if there is one, and says HELLO. `is_start`: of the process, which may end soon. 0 or a negative
 * errno. SIGNAL-SAFE. */
int stackd_helper_connect(bool is_start);

/* Looks at what the process is, unless that was done. SIGNAL-SAFE. */
void stackd_helper_describe_whole(void);

/* Passes memory where a runtime was found since HELLO, that did not come with it. */
void stackd_helper_pass_memory(void);

/* Gives the daemon a new end of the bell. False if there is none. SIGNAL-SAFE. */
bool stackd_helper_send_bell(void);

/* In the child of a fork. */
void stackd_helper_introduction_reset_after_fork(void);

#endif /* STACKD_HELPER_STATE_H_ */
