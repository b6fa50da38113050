// What was mapped where in the process of a core: its segments, joined with the files that it says were mapped there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/core/core_file.h"

namespace stackd {

// A part of the address space that is of one segment, and of one file or of none.
struct CorePart {
  uint64_t start_avma = 0;
  uint64_t end_avma = 0;
  int32_t file = -1;         // index into CoreLayout::files; -1: anonymous memory
  uint64_t file_offset = 0;  // of `start_avma`, in that file
  bool readable = false, writable = false, executable = false;
  // What the core has of it, from `start_avma`: so many bytes at this place of the core.
  uint64_t core_offset = 0;
  uint64_t core_bytes = 0;
  // The core had more of it once, which differs from the file.
  bool cut = false;
};

struct CoreLayoutFile {
  std::string path;
  bool has_code = false;
  // The part of its first byte, where an ELF file has its header; -1: that is not mapped.
  int64_t first_part = -1;
};

struct CoreLayout {
  std::vector<CorePart> parts;  // by address
  std::vector<CoreLayoutFile> files;
  int32_t executable = -1;  // index into `files`; -1: not known
  int64_t heap = -1;        // index into `parts`, of what brk() gave; -1: none, or not known
};

// Debuggers leave out segments that are as in their files. What those allowed is told by the ELF header of the file, which
// the core has.
CoreLayout LayOut(const CoreFile& core);

// What the core has of the first bytes of the file, at most `limit_bytes`.
std::string FirstBytes(const CoreFile& core, const CoreLayout& layout, const CoreLayoutFile& file, size_t limit_bytes);

// As /proc/PID/maps would say it. The core tells neither devices nor inodes, so each file has its own number: its index
// plus 1. Nor does it say which mappings are shared: those are that are written to and whose file has no code.
std::string MapsText(const CoreFile& core, const CoreLayout& layout);

}  // namespace stackd
