// The memory of the process of a core: what the core has, and what it leaves to files that are the same.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "daemon/core/core_file.h"
#include "daemon/core/core_layout.h"
#include "daemon/core/mapped_copies.h"

extern "C" {
#include "agent/sys/memory_pieces.h"
}

namespace stackd {

// Immutable; any thread.
class CoreMemory {
 public:
  // The fds of both must outlive it.
  CoreMemory(const CoreFile& core, const CoreLayout& layout, const MappedCopies& copies);
  CoreMemory(const CoreMemory&) = delete;
  CoreMemory& operator=(const CoreMemory&) = delete;

  // As ProcessFiles::ReadImage.
  int64_t Read(uint64_t avma, std::span<uint8_t> bytes) const {
    return stackd_memory_pieces_read(&memory_, avma, bytes.data(), bytes.size());
  }
  // What Read reads, for the agent's code.
  const stackd_memory_pieces& pieces() const { return memory_; }

 private:
  std::vector<stackd_memory_piece> pieces_;
  stackd_memory_pieces memory_;
};

}  // namespace stackd
