/* A look at how often and how long each thread of this process has run, from procfs: no thread takes part. */
#ifndef STACKD_SCHED_STATS_H_
#define STACKD_SCHED_STATS_H_

#include "agent/dump/command.h"

/* Writes SCHEDSTAT records; a thread that ends meanwhile has no entry. Cut by deadline or
 * cancellation it is never done. NOT SIGNAL-SAFE; helper thread only. */
void stackd_sched_stats_run(struct stackd_job* job);

#endif /* STACKD_SCHED_STATS_H_ */
