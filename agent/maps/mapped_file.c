#include "agent/maps/mapped_file.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/sys/kernel.h"
#include "agent/sys/large.h"
#include "agent/sys/private_fd.h"
#include "agent/sys/text.h"

#define MS 1000000ull
#define PAGE_BYTES 4096u
/* A daemon asks for one file after another, and of an image for one page after another. */
#define BELIEVED_NS (100 * MS)
#define MAX_LISTED 256

static const char kVdso[] = "[vdso]";

/* One line of maps: "start-end perms offset major:minor inode path". */
struct mapping {
  uint64_t start;
  uint64_t end;
  uint64_t file_offset;
  uint64_t device;
  uint64_t inode;
  bool readable, writable, executable, is_private;
  const char* path; /* valid until the next line is read */
};

struct lines {
  int maps_fd;
  off_t offset;
  size_t begin; /* of the next line */
  size_t held;
};

/* Holds the longest path and what stands in front of it. */
static STACKD_LARGE char text[2 * 4096];

/* As struct stat has it: makedev() is a function of glibc alone. */
static uint64_t device_number(uint64_t major_number, uint64_t minor_number) {
  return (major_number & 0xfffff000u) << 32 | (major_number & 0xfffu) << 8 | (minor_number & 0xffffff00u) << 12 |
         (minor_number & 0xffu);
}

static bool parse(const char* at, struct mapping* out) {
  out->start = stackd_take_number(&at, 16);
  if (*at++ != '-') return false;
  out->end = stackd_take_number(&at, 16);
  if (strnlen(at, 6) < 6 || *at++ != ' ') return false;
  out->readable = at[0] == 'r';
  out->writable = at[1] == 'w';
  out->executable = at[2] == 'x';
  out->is_private = at[3] == 'p';
  at += 4;
  out->file_offset = stackd_take_number(&at, 16);
  uint64_t major_number = stackd_take_number(&at, 16);
  if (*at++ != ':') return false;
  out->device = device_number(major_number, stackd_take_number(&at, 16));
  out->inode = stackd_take_number(&at, 10);
  out->path = at + strspn(at, " ");
  return true;
}

/* False behind the last line. */
static bool next(struct lines* lines, struct mapping* out) {
  for (;;) {
    char* end = memchr(text + lines->begin, '\n', lines->held - lines->begin);
    if (end != NULL) {
      *end = '\0';
      bool is_one = parse(text + lines->begin, out);
      lines->begin = (size_t)(end - text) + 1;
      if (is_one) return true;
      continue;
    }
    memmove(text, text + lines->begin, lines->held - lines->begin);
    lines->held -= lines->begin;
    lines->begin = 0;
    ssize_t got = stackd_pread(lines->maps_fd, text + lines->held, sizeof(text) - lines->held, lines->offset);
    if (got <= 0) return false;
    lines->held += (size_t)got;
    lines->offset += got;
  }
}

/* A mapping with code of a file. */
struct code {
  uint64_t path_hash;
  uint64_t device;
  uint64_t inode;
  uint64_t start;
  uint64_t file_offset;
};

/* The daemon asks for all files of a process, one after another. With thousands of threads each look at maps takes long. */
static STACKD_LARGE struct {
  struct code code[MAX_LISTED];
  size_t count;
} listed;
static uint64_t listed_until_ns;

/* FNV-1a, 64 bits. Two paths with one hash are told apart by the file that is opened. */
static uint64_t hash_of(const char* path) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *path != '\0'; path++) hash = (hash ^ (unsigned char)*path) * 0x100000001b3u;
  return hash;
}

static bool find_listed(uint64_t path_hash, struct code* out) {
  for (size_t i = 0; i < listed.count; i++) {
    if (listed.code[i].path_hash != path_hash) continue;
    *out = listed.code[i];
    return true;
  }
  return false;
}

/* What the list has no room for is found all the same, by a look at maps for each. */
static bool list_and_find(int maps_fd, uint64_t path_hash, struct code* out) {
  struct lines lines = {maps_fd, 0, 0, 0};
  struct mapping mapping;
  bool is_found = false;
  listed.count = 0;
  while (next(&lines, &mapping)) {
    if (!mapping.executable || mapping.inode == 0) continue;
    struct code code = {hash_of(mapping.path), mapping.device, mapping.inode, mapping.start, mapping.file_offset};
    if (listed.count < MAX_LISTED) listed.code[listed.count++] = code;
    if (is_found || code.path_hash != path_hash) continue;
    *out = code;
    is_found = true;
  }
  return is_found;
}

static bool find_code(int maps_fd, const char* path, struct code* out) {
  uint64_t path_hash = hash_of(path);
  uint64_t now_ns = stackd_clock_ns(CLOCK_MONOTONIC);
  if (now_ns < listed_until_ns && find_listed(path_hash, out)) return true;
  listed_until_ns = now_ns + BELIEVED_NS;
  return list_and_find(maps_fd, path_hash, out);
}

static bool has_code(int maps_fd, const struct mapping* of) {
  struct lines lines = {maps_fd, 0, 0, 0};
  struct mapping mapping;
  while (next(&lines, &mapping)) {
    if (mapping.executable && mapping.device == of->device && mapping.inode == of->inode) return true;
  }
  return false;
}

/* --- Files --- */

static bool begins_as(int fd, const struct code* code) {
  static STACKD_LARGE char in_file[PAGE_BYTES], in_memory[PAGE_BYTES];
  ssize_t got = stackd_pread(fd, in_file, sizeof(in_file), (off_t)code->file_offset);
  return got > 0 && stackd_read_memory(stackd_getpid(), code->start, in_memory, (size_t)got) == got &&
         memcmp(in_file, in_memory, (size_t)got) == 0;
}

/* maps shows other numbers than fstat of files of overlay file systems, and of btrfs. Their code must be the same. */
static bool is_mapped_file(int fd, const struct stat* status, const struct code* code) {
  return (status->st_dev == code->device && status->st_ino == code->inode) || begins_as(fd, code);
}

int stackd_mapped_file_open(int maps_fd, const char* path) {
  const bool is_executable = strcmp(path, "/proc/self/exe") == 0;
  struct code code = {0};
  if (!is_executable && !find_code(maps_fd, path, &code)) return -EPERM;
  int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (is_executable ? 0 : O_NOFOLLOW);
  int fd = stackd_own_fd_hold(stackd_open(path, flags), STACKD_FD_FILE);
  if (fd < 0) return fd;
  struct stat status;
  bool may_be_had =
      stackd_fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && (is_executable || is_mapped_file(fd, &status, &code));
  if (may_be_had) return fd;
  stackd_own_fd_drop(fd);
  return -EPERM;
}

/* --- Mappings --- */

/* Found fit a moment ago. */
static struct {
  uint64_t start;
  uint64_t end;
  uint64_t until_ns;
} believed;

static bool find_image(int maps_fd, uint64_t address) {
  struct lines lines = {maps_fd, 0, 0, 0};
  struct mapping mapping;
  do {
    if (!next(&lines, &mapping)) return false;
  } while (mapping.end <= address);
  if (mapping.start > address || !mapping.readable || mapping.writable || !mapping.is_private) return false;
  believed.start = mapping.start;
  believed.end = mapping.end;
  return strcmp(mapping.path, kVdso) == 0 || (mapping.inode != 0 && has_code(maps_fd, &mapping));
}

int stackd_mapped_file_read(int maps_fd, uint64_t address, void* out, size_t size_bytes) {
  uint64_t now_ns = stackd_clock_ns(CLOCK_MONOTONIC);
  if (now_ns >= believed.until_ns || address < believed.start || address >= believed.end) {
    believed.until_ns = 0;
    if (!find_image(maps_fd, address)) return -EPERM;
    believed.until_ns = now_ns + BELIEVED_NS;
  }
  if (size_bytes > believed.end - address) return -EPERM;
  long got = stackd_read_memory(stackd_getpid(), address, out, size_bytes);
  if (got < 0) return (int)got;
  return (size_t)got == size_bytes ? 0 : -EFAULT;
}
