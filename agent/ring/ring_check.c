#include "agent/ring/ring_check.h"

#include <errno.h>
#include <fcntl.h>

#include "agent/sys/kernel.h"
#include "agent/sys/private_fd.h"
#include "stackd/ring_abi.h"

#define NEEDED_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#define MAX_BYTES (STACKD_HEADER_BYTES + (uint64_t)STACKD_MAX_SLOTS * STACKD_SLOT_BYTES)

int stackd_ring_check_file(int fd, uint64_t size_bytes) {
  if (size_bytes > MAX_BYTES) return -EPROTO;
  int seals = stackd_fcntl(fd, F_GET_SEALS, 0);
  if (seals < 0 || (seals & NEEDED_SEALS) != NEEDED_SEALS) return -EPROTO;
  /* Behind the look at the seals: before, it might shrink. */
  struct stat status;
  if (stackd_fstat(fd, &status) != 0 || (uint64_t)status.st_size != size_bytes) return -EPROTO;
  return 0;
}
