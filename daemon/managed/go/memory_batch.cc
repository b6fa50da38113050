#include "daemon/managed/go/memory_batch.h"

#include <algorithm>

namespace stackd {
namespace {

// To read over a gap of this size costs less than another call.
constexpr uint64_t kMaxGapBytes = 2048;
constexpr uint64_t kMaxRunBytes = 1 << 20;
constexpr uint64_t kPageBytes = 4096;

}  // namespace

size_t MemoryBatch::Add(uint64_t avma, uint32_t size_bytes) {
  pieces_.push_back({avma, size_bytes});
  return pieces_.size() - 1;
}

void MemoryBatch::Clear() { pieces_.clear(); }

void MemoryBatch::Read(const ProcessFiles& memory) {
  by_address_.clear();
  for (uint32_t i = 0; i < pieces_.size(); ++i) {
    // A piece that wraps around is never read.
    if (pieces_[i].avma <= ~uint64_t{0} - pieces_[i].size_bytes) by_address_.push_back(i);
  }
  std::sort(by_address_.begin(), by_address_.end(),
            [this](uint32_t a, uint32_t b) { return pieces_[a].avma < pieces_[b].avma; });
  // The buffer is neither grown, which would copy it, nor zeroed. What an earlier batch left there is written over, or not
  // used.
  const uint64_t wanted_bytes = FindRuns();
  if (capacity_bytes_ < wanted_bytes) {
    bytes_ = std::make_unique_for_overwrite<uint8_t[]>(wanted_bytes);
    capacity_bytes_ = wanted_bytes;
  }
  for (const Run& run : runs_) ReadRun(memory, run);
}

uint64_t MemoryBatch::FindRuns() {
  runs_.clear();
  uint64_t position = 0;
  for (size_t first = 0; first < by_address_.size();) {
    uint64_t start = pieces_[by_address_[first]].avma;
    uint64_t end = start;
    size_t next = first;
    for (; next < by_address_.size(); ++next) {
      const Piece& piece = pieces_[by_address_[next]];
      const uint64_t piece_end = piece.avma + piece.size_bytes;
      if (next > first && (piece.avma > end + kMaxGapBytes || piece_end - start > kMaxRunBytes)) break;
      end = std::max(end, piece_end);
    }
    // The kernel goes by page sizes from where a read begins: from within a page, each step would look up two.
    if (end - start > kPageBytes) start -= start % kPageBytes;
    runs_.push_back({{by_address_.data() + first, next - first}, start, end, position});
    position += end - start;
    first = next;
  }
  return position;
}

void MemoryBatch::ReadRun(const ProcessFiles& memory, const Run& run) {
  const uint64_t readable_end = run.start + memory.ReadSome(run.start, {bytes_.get() + run.position, run.end - run.start});
  for (uint32_t i : run.pieces) {
    Piece& piece = pieces_[i];
    piece.position = run.position + (piece.avma - run.start);
    // Behind a page that is not there others may be.
    piece.was_read = piece.avma + piece.size_bytes <= readable_end ||
                     memory.ReadSome(piece.avma, {bytes_.get() + piece.position, piece.size_bytes}) == piece.size_bytes;
  }
}

std::span<const uint8_t> MemoryBatch::Bytes(size_t piece) const {
  const Piece& wanted = pieces_[piece];
  if (!wanted.was_read) return {};
  return {bytes_.get() + wanted.position, wanted.size_bytes};
}

}  // namespace stackd
