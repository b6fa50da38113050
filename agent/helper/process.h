/* What this process is, and how the agent was told to behave. NOT SIGNAL-SAFE. */
#ifndef STACKD_PROCESS_H_
#define STACKD_PROCESS_H_

#include <pthread.h>
#include <stdbool.h>

#include "agent/sys/private_fd.h"
#include "stackd/wire.h"

/* In place of a user: see listener.h. */
#define STACKD_USUAL_DAEMON (-1)
#define STACKD_ANY_DAEMON (-2)

struct stackd_settings {
  char dir[STACKD_PATH_BYTES];
  char socket_path[STACKD_PATH_BYTES];
  int64_t daemon_uid; /* the one user that is taken for the daemon, or one of those above */
  int dump_signal;
  uint64_t crash_signals; /* bit n - 1 is signal n */
  uint64_t crash_hold_ns;
  enum stackd_share share;
  /* No level was chosen: `share` until a runtime is found that needs more. */
  bool shares_as_needed;
  bool dumps_under_filter;
  /* As it follows HELLO (wire.h). */
  char place[STACKD_PLACE_BYTES];
  uint32_t place_bytes;
};

/* Whether the environment says that there is to be no agent. */
bool stackd_is_disabled(void);

/* From the environment (agent.h). 0; -ECANCELED if the agent is switched off; -EINVAL for a value that cannot be used. */
int stackd_settings_read(struct stackd_settings* settings);

/* Files of this process that it may not be able to open later, once it has changed its user id. */
struct stackd_process_files {
  struct stackd_own_fd mem;
  struct stackd_own_fd maps;
};

/* Opens those that are not open. */
void stackd_process_files_open(struct stackd_process_files* files);
void stackd_process_files_close(struct stackd_process_files* files);

/* Fills in everything but header, abi_version, flags and name. SIGNAL-SAFE. */
void stackd_process_describe(struct stackd_hello* hello);

/* The same by what is at hand, so that a process that ends soon opens no file for it. `start_ticks` is left to the daemon;
 * `argv0` and `exe` are those of `before`, which describes the parent. NULL: the program has not begun yet. SIGNAL-SAFE. */
void stackd_process_describe_briefly(const struct stackd_hello* before, struct stackd_hello* hello);

/* Whether a filter of system calls was put on this thread, or on the program before it began. */
bool stackd_process_has_filter(void);

/* Copies `from` to `to`, cut to fit, NUL-terminated. */
void stackd_copy_string(char* to, size_t size_bytes, const char* from);

#endif /* STACKD_PROCESS_H_ */
