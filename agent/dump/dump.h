/* One dump of this process, run by the helper thread: asks every thread for its stack and accounts for each. */
#ifndef STACKD_DUMP_H_
#define STACKD_DUMP_H_

#include <stdint.h>

#include "agent/dump/command.h"

struct stackd_dump_options {
  int dump_signal;
  int maps_fd; /* < 0: none */
  uint32_t max_stack_bytes;
  uint32_t only_tid; /* as if the process had no other thread; 0: all */
  uint32_t quiet;    /* stackd_quiet */
  uint32_t skip_tid; /* of the thread that crashed: it waits for the daemon, and its record is there; 0: none */
};

/* Returns when each thread has a record or a status in the ring, at the latest soon after the deadline; then publishes
 * done_seq. NOT SIGNAL-SAFE; helper thread only. */
void stackd_dump_run(struct stackd_job* job, const struct stackd_dump_options* options);

/* Looks what is mapped, unless a dump did a moment ago: which addresses are code, and whether a runtime was loaded. What
 * changed is told to the daemon through `ring`. Done before every dump. NOT SIGNAL-SAFE; helper thread only. */
void stackd_dump_look_at_maps(const struct stackd_ring* ring, int maps_fd);

/* In the child of a fork: the parent's helper may have been in the middle of a dump. What it had is left behind. */
void stackd_dump_reset_after_fork(void);

#endif /* STACKD_DUMP_H_ */
