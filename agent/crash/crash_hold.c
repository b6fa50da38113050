#include "agent/crash/crash_hold.h"

#include "agent/sys/kernel.h"
#include "stackd/wire.h"

/* The daemon takes the record within this part of the hold, or is not there. */
#define TAKEN_PART 4
#define MAX_TAKEN_NS 500000000ull
/* What the daemon has not stored goes to a file, in these eighths of the hold, each process at a moment of its own. Of a
 * thousand that crash at once hundreds may be late, and all of them write, and end, on the same few CPUs. */
#define SPOOL_FIRST_EIGHTH 4
#define SPOOL_EIGHTHS 2
/* A daemon that dies is noticed after this part of the time that it was waited for, too. When a thousand processes wait,
 * their looking must not keep it from its work. */
#define LOOK_PART 4

static uint64_t hold_ns;

void stackd_crash_hold_init(uint64_t use_hold_ns) { hold_ns = use_hold_ns; }

uint64_t stackd_crash_hold_ns(void) { return hold_ns; }

uint64_t stackd_crash_taken_within_ns(void) {
  return hold_ns / TAKEN_PART < MAX_TAKEN_NS ? hold_ns / TAKEN_PART : MAX_TAKEN_NS;
}

STACKD_HANDLER static uint64_t stored_within_ns(const struct stackd_crash_record* record) {
  /* An id is random. */
  uint64_t own_part = record->id[0] % 256;
  return hold_ns / 8 * SPOOL_FIRST_EIGHTH + hold_ns / 8 * SPOOL_EIGHTHS * own_part / 256;
}

bool stackd_crash_hold(const struct stackd_crash_link* link, const struct stackd_crash_record* record, uint64_t begin_ns) {
  if (!stackd_crash_link_tell(link, STACKD_MSG_CRASH)) return false;
  uint64_t stored_ns = stored_within_ns(record);
  uint32_t* word = &link->ring->header->crash_phase;
  for (;;) {
    uint32_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    if (seen >= STACKD_CRASH_STORED) return true;
    uint64_t held_ns = stackd_clock_ns(CLOCK_MONOTONIC) - begin_ns;
    uint64_t limit_ns = seen >= STACKD_CRASH_TAKEN ? stored_ns : stackd_crash_taken_within_ns();
    if (held_ns >= limit_ns || stackd_crash_link_is_over(link)) return false;
    uint64_t wait_ns = held_ns / LOOK_PART > STACKD_CRASH_LOOK_NS ? held_ns / LOOK_PART : STACKD_CRASH_LOOK_NS;
    if (wait_ns > limit_ns - held_ns) wait_ns = limit_ns - held_ns;
    struct timespec timeout = stackd_timespec(wait_ns);
    stackd_futex_wait(word, seen, &timeout, 0);
  }
}
