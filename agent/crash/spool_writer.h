/* Writes a crash to a file (spool.h) where no daemon took it. */
#ifndef STACKD_SPOOL_WRITER_H_
#define STACKD_SPOOL_WRITER_H_

#include <stdbool.h>

#include "agent/ring/ring_writer.h"
#include "stackd/wire.h"

/* A ring of our own, for crashes that find no daemon's. */
const struct stackd_ring* stackd_spool_ring(void) STACKD_HANDLER;

/* At install. `folder` is $STACKD_DIR. Touches memory for a crash of one thread with a short stack, since a cgroup may have
 * none left then. More would cost each start of a small program. NOT SIGNAL-SAFE. */
void stackd_spool_init(const char* folder);

/* Touches the rest of that memory. NOT SIGNAL-SAFE. */
void stackd_spool_touch_all(void);

/* In the child of a fork, which shares this memory with its parent until it crashes. */
void stackd_spool_reset_after_fork(void);

/* What the file is to say of this process; the caller keeps it for ever. Helper thread only. */
void stackd_spool_set_process(const struct stackd_hello* process);

/* < 0: none. */
struct stackd_spool_fds {
  int given; /* the daemon's file */
  int maps;
  int spare; /* to be closed if that is what it takes to open one */
};

/* Writes the CRASH record that begins in `first_slot` to the file given, or else to one of our own. False if that failed.
 * HANDLER ONLY, one thread of a process. */
bool stackd_spool_write(const struct stackd_ring* ring, uint32_t first_slot,
                        const struct stackd_spool_fds* fds) STACKD_HANDLER;

#endif /* STACKD_SPOOL_WRITER_H_ */
