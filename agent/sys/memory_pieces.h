/* Memory of a process that has ended, in pieces of files: a core file, and the files that the process had mapped. stackctl
 * alone reads such; the agent never sets any.
 */
#ifndef STACKD_MEMORY_PIECES_H_
#define STACKD_MEMORY_PIECES_H_

#include "agent/sys/syscalls.h"

struct stackd_memory_piece {
  uint64_t start; /* addresses */
  uint64_t end;
  uint64_t file_offset; /* of the byte at `start` */
  int fd;
};

struct stackd_memory_pieces {
  const struct stackd_memory_piece* pieces; /* by address, not overlapping */
  size_t count;
};

/* Copies up to the first byte that no piece has, or that the file of its piece lacks. Returns how many bytes, or -EFAULT
 * for none. SIGNAL-SAFE. Syscalls: pread64. */
long stackd_memory_pieces_read(const struct stackd_memory_pieces* memory, uint64_t address, void* out,
                               size_t size_bytes) STACKD_HANDLER;

/* From now on stackd_read_memory() reads these and no process, whatever its pid. Both the pieces and their files stay. NOT
 * SIGNAL-SAFE. */
void stackd_read_memory_by_pieces(const struct stackd_memory_pieces* memory);

#endif /* STACKD_MEMORY_PIECES_H_ */
