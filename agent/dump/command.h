/* A command of the daemon's while the helper runs it: how long the daemon waits for what it gives. Helper thread only: NOT
 * SIGNAL-SAFE. */
#ifndef STACKD_COMMAND_H_
#define STACKD_COMMAND_H_

#include <stdbool.h>
#include <stdint.h>

#include "agent/ring/ring_writer.h"

struct stackd_job {
  const struct stackd_ring* ring;
  uint32_t seq;
  int socket_fd; /* of the daemon, which waits for the result */
  uint64_t deadline_ns;
  const uint32_t* is_to_hurry; /* not 0: the helper is to end, and cannot wait for answers */
  bool over;                   /* deadline passed, cancelled, daemon gone, or the helper is to hurry */
  bool abandoned;              /* daemon gone: what is written is not read */
  uint64_t look_for_daemon_ns;
};

/* Sets `over` and returns it. Makes a system call only every some milliseconds. */
bool stackd_job_is_over(struct stackd_job* job);

/* Over for so long, as far as stackd_job_is_over() has seen, that not even a record of what was left out is waited for. */
bool stackd_job_is_forgotten(const struct stackd_job* job);

/* Begins a record of one slot; waits for the reader to make room. NULL if it made none until soon after the deadline, or
 * is gone. */
void* stackd_job_begin_record(struct stackd_job* job, struct stackd_ring_writer* writer, uint32_t kind,
                              uint32_t size_bytes);

/* Publishes how many threads the command is about, and that it has begun. */
void stackd_job_publish_listed(const struct stackd_job* job, uint32_t threads_listed);

/* Publishes that all of it is in the ring; or why the command could not be run, a negative errno. */
void stackd_job_publish_done(const struct stackd_job* job, int error);

/* Through the vDSO: here the C library may be called, and a system call each time shows. */
uint64_t stackd_monotonic_ns(void);

#endif /* STACKD_COMMAND_H_ */
