#include "daemon/managed/go/memory_batch.h"

#include <algorithm>

namespace stackd {
namespace {

// To read over a gap of this size costs less than another call.
constexpr uint64_t kMaxGapBytes = 2048;
constexpr uint64_t kMaxRunBytes = 1 << 20;

}  // namespace

size_t MemoryBatch::Add(uint64_t avma, uint32_t size_bytes) {
  pieces_.push_back({avma, size_bytes});
  return pieces_.size() - 1;
}

void MemoryBatch::Clear() { pieces_.clear(); }

void MemoryBatch::Read(const ProcessFiles& memory) {
  by_address_.clear();
  for (uint32_t i = 0; i < pieces_.size(); ++i) {
    // One that wraps around is never read.
    if (pieces_[i].avma <= ~uint64_t{0} - pieces_[i].size_bytes) by_address_.push_back(i);
  }
  std::sort(by_address_.begin(), by_address_.end(),
            [this](uint32_t a, uint32_t b) { return pieces_[a].avma < pieces_[b].avma; });
  uint64_t position = 0;
  for (size_t first = 0; first < by_address_.size();) {
    const uint64_t start = pieces_[by_address_[first]].avma;
    uint64_t end = start;
    size_t next = first;
    for (; next < by_address_.size(); ++next) {
      const Piece& piece = pieces_[by_address_[next]];
      const uint64_t piece_end = piece.avma + piece.size_bytes;
      if (next > first && (piece.avma > end + kMaxGapBytes || piece_end - start > kMaxRunBytes)) break;
      end = std::max(end, piece_end);
    }
    // What an earlier batch left in the buffer is written over, or not used.
    if (bytes_.size() < position + (end - start)) bytes_.resize(position + (end - start));
    ReadRun(memory, {by_address_.data() + first, next - first}, position);
    position += end - start;
    first = next;
  }
}

void MemoryBatch::ReadRun(const ProcessFiles& memory, std::span<const uint32_t> run, uint64_t position) {
  const uint64_t start = pieces_[run.front()].avma;
  uint64_t end = start;
  for (uint32_t i : run) end = std::max(end, pieces_[i].avma + pieces_[i].size_bytes);
  const uint64_t readable_end = start + memory.ReadSome(start, {bytes_.data() + position, end - start});
  for (uint32_t i : run) {
    Piece& piece = pieces_[i];
    piece.position = position + (piece.avma - start);
    // Behind a page that is not there others may be.
    piece.was_read = piece.avma + piece.size_bytes <= readable_end ||
                     memory.ReadSome(piece.avma, {bytes_.data() + piece.position, piece.size_bytes}) == piece.size_bytes;
  }
}

std::span<const uint8_t> MemoryBatch::Bytes(size_t piece) const {
  const Piece& wanted = pieces_[piece];
  if (!wanted.was_read) return {};
  return {bytes_.data() + wanted.position, wanted.size_bytes};
}

}  // namespace stackd
