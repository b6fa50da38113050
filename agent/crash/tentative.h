/* Records of faults that a handler of the program is dealing with (active_fault.h): they count if the process ends before
 * they are taken back (stackd_ring_header.tentative). HANDLER ONLY. */
#ifndef STACKD_TENTATIVE_H_
#define STACKD_TENTATIVE_H_

#include "agent/crash/active_fault.h"
#include "agent/crash/crash_record.h"

/* Writes one, unless there was one in the last 100 ms: a program may live on such faults. */
void stackd_tentative_write(const struct stackd_ring* ring, const struct stackd_fault* fault,
                            struct stackd_active_fault* active) STACKD_HANDLER;

/* Whether there may be any. */
bool stackd_tentative_is_any(void) STACKD_HANDLER;

/* Takes it back, if it is still there. */
void stackd_tentative_withdraw(const struct stackd_ring* ring, struct stackd_active_fault* active) STACKD_HANDLER;

/* Takes all back: the process ends for another reason, or its crash is recorded. */
void stackd_tentative_withdraw_all(const struct stackd_ring* ring) STACKD_HANDLER;

#endif /* STACKD_TENTATIVE_H_ */
