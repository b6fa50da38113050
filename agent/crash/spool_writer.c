#include "agent/crash/spool_writer.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/stat.h>

#include "agent/maps/maps_line.h"
#include "agent/sys/fork_reset.h"
#include "agent/sys/kernel.h"
#include "agent/sys/large.h"
#include "stackd/spool.h"

/* What one crash needs if the filter drops nothing: 64 KiB and 16 KiB of stack. */
#define OWN_SLOTS 48
#define ALL_SLOTS ((1ull << OWN_SLOTS) - 1)
/* What nearly every crash of a program without threads needs. */
#define FIRST_SLOTS 12
#define MAX_MAPS_BYTES (4u << 20)
#define CHUNK_BYTES 4096
#define ID_DIGITS 32
#define FOLDER_BYTES (STACKD_PATH_BYTES - 64)

static STACKD_LARGE struct own_memory {
  union {
    struct stackd_ring_header header;
    char bytes[STACKD_HEADER_BYTES];
  };
  char slots[OWN_SLOTS * STACKD_SLOT_BYTES];
} own __attribute__((aligned(4096)));

static const struct stackd_ring own_ring = {&own.header, OWN_SLOTS, 0};

static char folder[FOLDER_BYTES]; /* "" if $STACKD_DIR is too long */
static uint32_t folder_length;
static STACKD_AT_FORK const struct stackd_hello* _Atomic described;

/* One crash at a time; static because the stack may be short, touched because memory may be. */
static char chunk[CHUNK_BYTES];
static struct stackd_spool_header header;

const struct stackd_ring* stackd_spool_ring(void) { return &own_ring; }

void stackd_spool_init(const char* use_folder) {
  uint32_t length = 0;
  while (use_folder[length] != '\0' && length < FOLDER_BYTES) length++;
  folder_length = length < FOLDER_BYTES ? length : 0;
  for (uint32_t i = 0; i < folder_length; i++) folder[i] = use_folder[i];
  stackd_spool_reset_after_fork();
  stackd_touch(&own, offsetof(struct own_memory, slots) + FIRST_SLOTS * STACKD_SLOT_BYTES);
  *(volatile char*)chunk = 0;
  *(volatile uint64_t*)&header.magic = 0;
}

void stackd_spool_touch_all(void) { stackd_touch(&own, sizeof(own)); }

void stackd_spool_reset_after_fork(void) {
  STACKD_RESET(described, NULL); /* that is the parent */
  STACKD_RESET(own.header.free[0], ALL_SLOTS);
  STACKD_RESET(own.header.ready[0], 0);
}

void stackd_spool_set_process(const struct stackd_hello* process) { atomic_store(&described, process); }

struct file {
  int fd;
  uint64_t size_bytes;
  bool failed; /* a disk that is full: the file stays without its magic */
};

STACKD_HANDLER static void append(struct file* file, const void* bytes, uint64_t count) {
  while (count > 0 && !file->failed) {
    long put = stackd_syscall6(SYS_pwrite64, file->fd, (long)bytes, (long)count, (long)file->size_bytes, 0, 0);
    if (put == -EINTR) continue;
    if (put <= 0) {
      file->failed = true;
      return;
    }
    bytes = (const char*)bytes + put;
    count -= (uint64_t)put;
    file->size_bytes += (uint64_t)put;
  }
}

STACKD_HANDLER static void append_slots(struct file* file, const struct stackd_ring* ring, uint32_t slot) {
  for (; slot < ring->slot_count && header.slot_count < ring->slot_count; header.slot_count++) {
    const struct stackd_slot_header* at = stackd_slot(ring, slot);
    append(file, at, STACKD_SLOT_BYTES);
    slot = at->next;
  }
}

STACKD_HANDLER static void append_maps(struct file* file, int maps_fd) {
  while (header.maps_bytes < MAX_MAPS_BYTES) {
    long got = stackd_syscall6(SYS_pread64, maps_fd, (long)chunk, sizeof(chunk), header.maps_bytes, 0, 0);
    if (got <= 0) return;
    append(file, chunk, (uint64_t)got);
    header.maps_bytes += (uint32_t)got;
  }
}

/* Appends the first bytes of an ELF file only: those of any other may be the program's data. */
STACKD_HANDLER static void append_image(struct file* file, const struct stackd_maps_line* line) {
  bool whole = line->readable && line->file_offset == 0 && line->inode != 0;
  if (!whole || header.image_count == STACKD_SPOOL_MAX_IMAGES) return;
  uint32_t first = 0;
  long got = stackd_read_memory(stackd_getpid(), line->range.start, &first, sizeof(first));
  if (got != sizeof(first) || first != 0x464c457f) return;
  /* A page that is gone from its file is an error here, not a fault. */
  uint64_t at = file->size_bytes + sizeof(struct stackd_spool_image);
  long put = stackd_syscall6(SYS_pwrite64, file->fd, (long)line->range.start, STACKD_SPOOL_IMAGE_BYTES, (long)at, 0, 0);
  if (put <= 0) return;
  struct stackd_spool_image image = {line->range.start, (uint32_t)put, 0};
  append(file, &image, sizeof(image));
  file->size_bytes += (uint64_t)put;
  header.image_count++;
}

STACKD_HANDLER static void append_images(struct file* file, int maps_fd) {
  struct stackd_maps_line line;
  stackd_maps_line_clear(&line);
  for (long offset = 0; offset < MAX_MAPS_BYTES;) {
    long got = stackd_syscall6(SYS_pread64, maps_fd, (long)chunk, sizeof(chunk), offset, 0, 0);
    if (got <= 0) return;
    offset += got;
    for (long i = 0; i < got; i++) {
      if (!stackd_maps_line_take(&line, chunk[i])) continue;
      append_image(file, &line);
      stackd_maps_line_clear(&line);
    }
  }
}

STACKD_HANDLER static void describe_process(void) {
  const struct stackd_hello* process = atomic_load(&described);
  char* to = (char*)&header.process;
  for (size_t i = 0; i < sizeof(header.process); i++) to[i] = process != NULL ? ((const char*)process)[i] : 0;
  if (process != NULL) return;
  /* The helper never ran. */
  header.process.header.type = STACKD_MSG_HELLO;
  header.process.header.size_bytes = sizeof(header.process);
  header.process.abi_version = STACKD_ABI_VERSION;
  header.process.pid = stackd_getpid();
  stackd_syscall6(SYS_readlink, (long)"/proc/self/exe", (long)header.process.exe, sizeof(header.process.exe) - 1, 0, 0, 0);
}

STACKD_HANDLER static bool write_all(int fd, const struct stackd_ring* ring, uint32_t first_slot, int maps_fd) {
  struct file file = {fd, sizeof(header), false};
  header.magic = STACKD_SPOOL_MAGIC;
  header.abi_version = STACKD_ABI_VERSION;
  header.header_bytes = sizeof(header);
  header.slot_count = 0;
  header.maps_bytes = 0;
  header.image_count = 0;
  header.pad = 0;
  header.wall_ns = stackd_clock_ns(CLOCK_REALTIME);
  describe_process();
  append_slots(&file, ring, first_slot);
  if (maps_fd >= 0) {
    append_maps(&file, maps_fd);
    append_images(&file, maps_fd);
  }
  if (file.failed) return false;
  struct file front = {fd, sizeof(header.magic), false};
  append(&front, (const char*)&header + sizeof(header.magic), sizeof(header) - sizeof(header.magic));
  front.size_bytes = 0;
  append(&front, &header.magic, sizeof(header.magic));
  return !front.failed;
}

/* "FOLDER/spool", or with `id` "FOLDER/spool/" + `before` + id in hex + `after`. */
STACKD_HANDLER static void make_path(char path[STACKD_PATH_BYTES], const uint64_t* id, const char* before,
                                     const char* after) {
  static const char kDigits[] = "0123456789abcdef";
  uint32_t at = 0;
  for (uint32_t i = 0; i < folder_length; i++) path[at++] = folder[i];
  path[at++] = '/';
  for (const char* c = STACKD_SPOOL_FOLDER; *c != '\0'; c++) path[at++] = *c;
  if (id != NULL) {
    path[at++] = '/';
    for (const char* c = before; *c != '\0'; c++) path[at++] = *c;
    for (uint32_t i = 0; i < ID_DIGITS; i++) path[at++] = kDigits[id[i / 16] >> (60 - 4 * (i % 16)) & 15];
    for (const char* c = after; *c != '\0'; c++) path[at++] = *c;
  }
  path[at] = '\0';
}

/* Where all may write to $STACKD_DIR, a daemon in another container has another user, and must be able to read the file.
 * The folder that it made shows the names to no other user. */
STACKD_HANDLER static long file_mode(void) {
  struct stat status;
  long error = stackd_syscall6(SYS_newfstatat, AT_FDCWD, (long)folder, (long)&status, 0, 0, 0);
  return error == 0 && (status.st_mode & S_IWOTH) != 0 ? 0644 : 0600;
}

STACKD_HANDLER static int create(const char* path, int spare_fd) {
  long flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  long mode = file_mode();
  long fd = stackd_syscall6(SYS_openat, AT_FDCWD, (long)path, flags, mode, 0, 0);
  if (fd == -EMFILE && spare_fd >= 0) {
    stackd_syscall6(SYS_close, spare_fd, 0, 0, 0, 0, 0);
    fd = stackd_syscall6(SYS_openat, AT_FDCWD, (long)path, flags, mode, 0, 0);
  }
  /* Whatever the umask is. */
  if (fd >= 0) stackd_syscall6(SYS_fchmod, fd, mode, 0, 0, 0, 0);
  return (int)fd;
}

STACKD_HANDLER static bool write_own_file(const struct stackd_ring* ring, uint32_t first_slot,
                                          const struct stackd_spool_fds* fds) {
  if (folder_length == 0) return false;
  const struct stackd_crash_record* record = stackd_slot(ring, first_slot);
  /* In `chunk`, which is used again before the file gets its name. */
  make_path(chunk, NULL, "", "");
  stackd_syscall6(SYS_mkdir, (long)chunk, 0700, 0, 0, 0, 0);
  make_path(chunk, record->id, ".", "");
  int fd = create(chunk, fds->spare);
  if (fd < 0) return false;
  bool written = write_all(fd, ring, first_slot, fds->maps);
  stackd_syscall6(SYS_close, fd, 0, 0, 0, 0, 0);
  static char name[STACKD_PATH_BYTES];
  make_path(chunk, record->id, ".", "");
  make_path(name, record->id, "", STACKD_SPOOL_SUFFIX);
  if (written) return stackd_syscall6(SYS_rename, (long)chunk, (long)name, 0, 0, 0, 0) == 0;
  stackd_syscall6(SYS_unlink, (long)chunk, 0, 0, 0, 0, 0);
  return false;
}

bool stackd_spool_write(const struct stackd_ring* ring, uint32_t first_slot, const struct stackd_spool_fds* fds) {
  if (fds->given >= 0 && write_all(fds->given, ring, first_slot, fds->maps)) return true;
  return write_own_file(ring, first_slot, fds);
}
