#include <stdatomic.h>

#include "agent/sys/memory_pieces.h"
#include "agent/sys/private_fd.h"
#include "agent/sys/syscalls.h"

static const struct stackd_own_fd* _Atomic memory_file;

void stackd_read_memory_by(const struct stackd_own_fd* file) {
  /* Most often it is known: what is not written, the child of a fork need not copy. */
  if (atomic_load(&memory_file) != file) atomic_store(&memory_file, file);
}

static atomic_int file_first;

void stackd_read_memory_by_file_first(void) { atomic_store(&file_first, 1); }

int stackd_reads_memory_by_file_first(void) { return atomic_load_explicit(&file_first, memory_order_relaxed); }

static const struct stackd_memory_pieces* _Atomic memory_pieces;

void stackd_read_memory_by_pieces(const struct stackd_memory_pieces* memory) {
  atomic_store(&memory_pieces, memory);
  stackd_read_memory_by_file_first();
}

STACKD_HANDLER static long read_pieces(uint64_t address, void* out, size_t size_bytes, long refusal) {
  const struct stackd_memory_pieces* memory = atomic_load_explicit(&memory_pieces, memory_order_relaxed);
  return memory != NULL ? stackd_memory_pieces_read(memory, address, out, size_bytes) : refusal;
}

STACKD_HANDLER long stackd_read_memory_file(uint64_t address, void* out, size_t size_bytes, long refusal) {
  const struct stackd_own_fd* file = atomic_load(&memory_file);
  int fd = file != NULL ? stackd_own_fd_get(file) : -1;
  if (fd < 0) return read_pieces(address, out, size_bytes, refusal);
  long got = stackd_syscall6(SYS_pread64, fd, (long)out, (long)size_bytes, (long)address, 0, 0);
  return got == -EIO ? -EFAULT : got;
}
