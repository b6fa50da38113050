#include "daemon/core/core_memory.h"

namespace stackd {

CoreMemory::CoreMemory(const CoreFile& core, const CoreLayout& layout, const MappedCopies& copies) {
  for (const CorePart& part : layout.parts) {
    const uint64_t in_core_until = part.start_avma + part.core_bytes;
    if (part.core_bytes > 0) pieces_.push_back({part.start_avma, in_core_until, part.core_offset, core.fd()});
    const int fd = part.file < 0 ? -1 : copies.fd(part.file);
    // What is left out is as in the file, but for what was written to and has been cut off.
    if (fd < 0 || part.cut || in_core_until == part.end_avma) continue;
    pieces_.push_back({in_core_until, part.end_avma, part.file_offset + part.core_bytes, fd});
  }
  memory_ = {pieces_.data(), pieces_.size()};
}

}  // namespace stackd
