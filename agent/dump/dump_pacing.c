#include "agent/dump/dump_run.h"
#include "agent/sys/kernel.h"

/* Questions in flight: of all threads one in 16, within these bounds. Threads that are woken in the middle of each other's
 * handlers take each other's CPU away. With 8 the 99th percentile of the pause is a quarter of that with 64. Where there
 * are many threads, a short dump is worth more: with 64 it takes three quarters of the time. */
#define LEAST_WINDOW 8u
#define WINDOW 64u
/* Where hundreds of threads compete for few cores, each wait of the helper costs a turn of all of them. */
#define MAX_WINDOW 512u
#define LONG_WAIT_NS (4 * STACKD_MS)
/* By then a thread was the only one asked, with half of the ring free: its stack will not fit, so take less of it. */
#define MAX_REFUSALS 8
#define MIN_STACK_BYTES 4096u

/* A late answer to an earlier dump may have been counted too: never below 0. */
uint32_t stackd_dump_in_flight(const struct stackd_dump* dump) {
  int32_t open = (int32_t)(dump->asked - (stackd_thread_answers() - dump->answers_before));
  return open > 0 ? (uint32_t)open : 0;
}

uint32_t stackd_dump_answers_when(const struct stackd_dump* dump, uint32_t count) {
  return dump->answers_before + dump->asked - count;
}

/* Wakes the reader early when the ring fills up faster than it looks: here, so that no watched thread pays for it. */
static bool make_room(const struct stackd_dump* dump) {
  const struct stackd_ring* ring = dump->job->ring;
  if (stackd_ring_free_slots(ring) >= ring->live_slot_count / 2) return true;
  stackd_ring_doorbell(ring);
  return false;
}

void stackd_dump_wait_for_room(struct stackd_dump* dump) {
  uint64_t pause_ns = STACKD_DUMP_QUIET_NS / 32;
  while (!make_room(dump) && !stackd_job_is_over(dump->job)) {
    stackd_pause_ns(pause_ns);
    if (pause_ns < STACKD_DUMP_QUIET_NS) pause_ns *= 2;
  }
}

/* Slow or silent threads must not hold up the others, nor may a helper that waits long for a CPU. So each quiet or long
 * spell widens the window. */
void stackd_dump_wait_for_window(struct stackd_dump* dump) {
  while (stackd_dump_in_flight(dump) >= dump->window && !stackd_job_is_over(dump->job)) {
    make_room(dump);
    uint32_t seen = stackd_thread_answers();
    uint64_t begin_ns = stackd_monotonic_ns();
    stackd_thread_wait_answers(stackd_dump_answers_when(dump, dump->window / 2), STACKD_DUMP_QUIET_NS);
    bool quiet = stackd_thread_answers() == seen;
    if (quiet || stackd_monotonic_ns() - begin_ns > LONG_WAIT_NS)
      dump->window += dump->window < MAX_WINDOW ? dump->window : WINDOW;
  }
}

void stackd_dump_open_window(struct stackd_dump* dump) {
  uint32_t window = dump->count / 16;
  if (window < LEAST_WINDOW) window = LEAST_WINDOW;
  dump->window = window < WINDOW ? window : WINDOW;
}

void stackd_dump_count_refusal(struct stackd_thread_entry* entry) {
  if (++entry->refusals > MAX_REFUSALS && entry->max_stack_bytes > MIN_STACK_BYTES) entry->max_stack_bytes /= 2;
}
