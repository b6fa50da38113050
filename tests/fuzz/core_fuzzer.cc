// The input is a core file. What is taken of it must hold together, and its memory must be where it says.
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

#include "daemon/core/core_file.h"
#include "daemon/core/core_layout.h"
#include "daemon/core/core_memory.h"
#include "daemon/core/mapped_copies.h"
#include "daemon/modules/address_map.h"

namespace stackd {
namespace {

void Check(bool holds) {
  if (!holds) abort();
}

void CheckFile(const CoreFile& core, size_t size_bytes) {
  uint64_t end_avma = 0;
  for (const CoreSegment& segment : core.segments()) {
    Check(segment.start_avma >= end_avma && segment.end_avma > segment.start_avma);
    Check(segment.file_bytes <= segment.end_avma - segment.start_avma);
    Check(segment.file_bytes == 0 || segment.file_offset + segment.file_bytes <= size_bytes);
    end_avma = segment.end_avma;
  }
  Check(!core.threads().empty() && core.threads().size() <= CoreFile::kMaxThreads);
  Check(std::ranges::all_of(core.threads(), [](const CoreThread& thread) { return thread.tid > 0 && thread.cpu_ns >= 0; }));
}

void CheckLayout(const CoreFile& core, const CoreLayout& layout) {
  uint64_t end_avma = 0;
  for (const CorePart& part : layout.parts) {
    Check(part.start_avma >= end_avma && part.end_avma > part.start_avma);
    Check(part.core_bytes <= part.end_avma - part.start_avma);
    Check(part.file >= -1 && part.file < std::ssize(layout.files));
    end_avma = part.end_avma;
  }
  for (const CoreLayoutFile& file : layout.files) Check(file.first_part < std::ssize(layout.parts));
  Check(ParseMaps(MapsText(core, layout)).size() == layout.parts.size());
}

}  // namespace
}  // namespace stackd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stackd;
  Fd file(memfd_create("core", MFD_CLOEXEC));
  Check(write(file.get(), data, size) == static_cast<ssize_t>(size));
  const auto core = CoreFile::Open(std::move(file), "core");
  if (!core) {
    Check(core.error().code == Code::kInvalidArgument);
    return 0;
  }
  CheckFile(*core, size);
  const CoreLayout layout = LayOut(*core);
  CheckLayout(*core, layout);
  const auto copies = MappedCopies::Open(*core, layout, "");
  Check(copies.has_value());
  const CoreMemory memory(*core, layout, *copies);
  for (const CorePart& part : layout.parts) {
    std::array<uint8_t, 64> bytes;
    const int64_t got = memory.Read(part.start_avma, bytes);
    Check(got < 0 || got >= std::min<int64_t>(static_cast<int64_t>(part.core_bytes), 64));
  }
  return 0;
}
