#include "agent/dump/command.h"

#include <stddef.h>

#include "agent/sys/kernel.h"

#define MS 1000000ull
/* A command that no daemon waits for ends soon, so that the agent is there for the next daemon. */
#define LOOK_FOR_DAEMON_NS (10 * MS)
/* After the deadline: the reader may still be making room. */
#define GRACE_NS (50 * MS)

uint64_t stackd_monotonic_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool is_cancelled(const struct stackd_job* job) {
  return __atomic_load_n(&job->ring->header->cancel_seq, __ATOMIC_RELAXED) == job->seq;
}

static bool daemon_is_gone(struct stackd_job* job, uint64_t now_ns) {
  if (now_ns < job->look_for_daemon_ns) return false;
  job->look_for_daemon_ns = now_ns + LOOK_FOR_DAEMON_NS;
  struct pollfd socket = {job->socket_fd, POLLRDHUP, 0};
  const struct timespec no_time = {0, 0};
  job->abandoned = stackd_ppoll(&socket, 1, &no_time) > 0;
  return job->abandoned;
}

static bool is_to_hurry(const struct stackd_job* job) { return __atomic_load_n(job->is_to_hurry, __ATOMIC_RELAXED) != 0; }

bool stackd_job_is_over(struct stackd_job* job) {
  uint64_t now_ns = stackd_monotonic_ns();
  if (is_to_hurry(job) || now_ns >= job->deadline_ns || daemon_is_gone(job, now_ns) || is_cancelled(job)) job->over = true;
  return job->over;
}

bool stackd_job_is_forgotten(const struct stackd_job* job) {
  return job->abandoned || stackd_monotonic_ns() >= job->deadline_ns + GRACE_NS || is_cancelled(job);
}

void* stackd_job_begin_record(struct stackd_job* job, struct stackd_ring_writer* writer, uint32_t kind,
                              uint32_t size_bytes) {
  void* record;
  while ((record = stackd_ring_begin(writer, job->ring, kind, size_bytes, 0)) == NULL) {
    stackd_job_is_over(job); /* looks whether the daemon is there */
    if (stackd_job_is_forgotten(job)) return NULL;
    stackd_ring_doorbell(job->ring);
    stackd_pause_ns(MS);
  }
  return record;
}

void stackd_job_publish_listed(const struct stackd_job* job, uint32_t threads_listed) {
  struct stackd_ring_header* header = job->ring->header;
  __atomic_store_n(&header->threads_listed, threads_listed, __ATOMIC_RELAXED);
  __atomic_store_n(&header->begun_seq, job->seq, __ATOMIC_RELEASE);
}

void stackd_job_publish_done(const struct stackd_job* job, int error) {
  __atomic_store_n(&job->ring->header->failure, error, __ATOMIC_RELAXED);
  __atomic_store_n(&job->ring->header->done_seq, job->seq, __ATOMIC_RELEASE);
  stackd_ring_doorbell(job->ring);
}
