/* A look at what each thread of this process sleeps in, from procfs: no thread is sent a signal or otherwise takes part. */
#ifndef STACKD_SAMPLE_H_
#define STACKD_SAMPLE_H_

#include "agent/dump/command.h"

/* Writes WAIT records. Threads that run have no entry; the helper, which runs this, is one of them, and is listed like all
 * others. Cut by deadline or cancellation it is never done, since a thread that has no entry then may sleep as well. Where
 * procfs does not tell, it fails: a process that has changed its user may not read its own.
 *
 * NOT SIGNAL-SAFE; helper thread only. */
void stackd_sample_run(struct stackd_job* job);

#endif /* STACKD_SAMPLE_H_ */
