/* The files of which code is mapped here. The daemon may have these, and no others. Where it has no fd of the memory it may
 * have their mappings. Helper thread only: NOT SIGNAL-SAFE (reads files). */
#ifndef STACKD_MAPPED_FILE_H_
#define STACKD_MAPPED_FILE_H_

#include <stddef.h>
#include <stdint.h>

/* Opens the file for reading: one of which code is mapped under this path now, or the executable as "/proc/self/exe". An
 * fd, which the caller drops (private_fd.h), or a negative errno. It is -EPERM if no code of it is mapped, or the path
 * leads to another file by now. */
int stackd_mapped_file_open(int maps_fd, const char* path);

/* Copies bytes of one mapping that is private and not writable: of a file of which code is mapped, or of the vDSO. 0 or a
 * negative errno: -EPERM if they lie elsewhere. */
int stackd_mapped_file_read(int maps_fd, uint64_t address, void* out, size_t size_bytes);

#endif /* STACKD_MAPPED_FILE_H_ */
