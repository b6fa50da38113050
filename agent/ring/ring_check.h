/* The file of a ring, before it is mapped: it comes from outside. NOT SIGNAL-SAFE. */
#ifndef STACKD_RING_CHECK_H_
#define STACKD_RING_CHECK_H_

#include <stdint.h>

/* 0 if the file at `fd` has `size_bytes`, as is claimed, will have them for ever, and no more than a ring can have. Else
 * -EPROTO. Where its end came before what is mapped, a handler would die of SIGBUS. */
int stackd_ring_check_file(int fd, uint64_t size_bytes);

#endif /* STACKD_RING_CHECK_H_ */
