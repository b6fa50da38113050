/* A look at how often and how long each thread of this process has run, from procfs: no thread takes part. */
#ifndef STACKD_MOTION_H_
#define STACKD_MOTION_H_

#include "agent/dump/command.h"

/* Writes MOTION records; a thread that ends meanwhile has no entry. Cut by deadline or
 * cancellation it is never done. NOT SIGNAL-SAFE; helper thread only. */
void stackd_motion_run(struct stackd_job* job);

#endif /* STACKD_MOTION_H_ */
