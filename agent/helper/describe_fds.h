/* What the fds of this process are, for a person who reads that a thread waits for number 17. Only the process's own table
 * and sockets are looked at, never a file, which may be on a disk that does not answer. NOT SIGNAL-SAFE. */
#ifndef STACKD_DESCRIBE_FDS_H_
#define STACKD_DESCRIBE_FDS_H_

#include "stackd/wire.h"

/* Fills in `names` for a request that was checked. */
void stackd_fd_names(const struct stackd_describe_fds* request, struct stackd_fd_names* names);

#endif /* STACKD_DESCRIBE_FDS_H_ */
