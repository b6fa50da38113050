/* How long a crashed process is kept for the daemon. HANDLER ONLY, but for the first. */
#ifndef STACKD_CRASH_HOLD_H_
#define STACKD_CRASH_HOLD_H_

#include <stdbool.h>
#include <stdint.h>

#include "agent/crash/crash_link.h"

/* Called once, before the first signal: how long at most. NOT SIGNAL-SAFE. */
void stackd_crash_hold_init(uint64_t hold_ns);

/* Returns how long at most. */
uint64_t stackd_crash_hold_ns(void) STACKD_HANDLER;

/* Returns within what part of it a daemon that is there has taken the record. */
uint64_t stackd_crash_taken_within_ns(void) STACKD_HANDLER;

/* Tells the daemon of the committed `record`, and waits. True if the daemon has the record on disk. */
bool stackd_crash_hold(const struct stackd_crash_link* link, const struct stackd_crash_record* record,
                       uint64_t begin_ns) STACKD_HANDLER;

#endif /* STACKD_CRASH_HOLD_H_ */
