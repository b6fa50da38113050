#include "agent/sys/memory_pieces.h"

/* The first piece that ends above `address`, or how many there are. */
STACKD_HANDLER static size_t first_above(const struct stackd_memory_pieces* memory, uint64_t address) {
  size_t low = 0, high = memory->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (memory->pieces[middle].end > address) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

STACKD_HANDLER long stackd_memory_pieces_read(const struct stackd_memory_pieces* memory, uint64_t address, void* out,
                                              size_t size_bytes) {
  size_t done = 0;
  for (size_t i = first_above(memory, address); i < memory->count && done < size_bytes; i++) {
    const struct stackd_memory_piece* piece = &memory->pieces[i];
    uint64_t at = address + done;
    if (piece->start > at) break;
    uint64_t left = piece->end - at;
    size_t want = size_bytes - done < left ? size_bytes - done : (size_t)left;
    long got = stackd_syscall6(SYS_pread64, piece->fd, (long)((char*)out + done), (long)want,
                               (long)(piece->file_offset + (at - piece->start)), 0, 0);
    if (got > 0) done += (size_t)got;
    if (got != (long)want) break;
  }
  return done > 0 ? (long)done : -EFAULT;
}
