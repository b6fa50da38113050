// Many small pieces of a process's memory by few system calls: what lies close together is read at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "daemon/process/process_files.h"

namespace stackd {

class MemoryBatch {
 public:
  // Returns the piece's number: 0, 1, ...
  size_t Add(uint64_t avma, uint32_t size_bytes);
  void Read(const ProcessFiles& memory);
  // Empty if any of it could not be read.
  std::span<const uint8_t> Bytes(size_t piece) const;

  size_t count() const { return pieces_.size(); }
  void Clear();

 private:
  struct Piece {
    uint64_t avma;
    uint32_t size_bytes;
    bool was_read = false;
    uint64_t position = 0;  // in bytes_
  };

  // Pieces that are read at once.
  struct Run {
    std::span<const uint32_t> pieces;  // of by_address_
    uint64_t start, end;
    uint64_t position;  // in bytes_
  };

  // Returns how many bytes they take.
  uint64_t FindRuns();
  void ReadRun(const ProcessFiles& memory, const Run& run);

  std::vector<Piece> pieces_;
  std::vector<uint32_t> by_address_;
  std::vector<Run> runs_;
  std::unique_ptr<uint8_t[]> bytes_;
  uint64_t capacity_bytes_ = 0;
};

}  // namespace stackd
