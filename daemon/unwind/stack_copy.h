// A copy of a thread's stack as the agent filtered it: the words that point into code or into the stack itself. Every other
// word reads as zero.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

namespace stackd {

class StackCopy {
 public:
  StackCopy() = default;
  // `masks` has one bit for each word from `base_avma` up, lowest bit first; `words` holds those whose bit is set.
  // Requires: words.size() == number of set bits among the first `word_count`; masks.size() == ceil(word_count / 64).
  StackCopy(uint64_t base_avma, uint32_t word_count, std::vector<uint64_t> masks, std::vector<uint64_t> words);

  uint64_t base_avma() const { return base_avma_; }
  uint64_t end_avma() const { return base_avma_ + 8ull * word_count_; }
  uint32_t word_count() const { return word_count_; }
  const std::vector<uint64_t>& masks() const { return masks_; }
  const std::vector<uint64_t>& words() const { return words_; }

  // The aligned word at `avma`; nullopt outside the copy or unaligned.
  std::optional<uint64_t> Read(uint64_t avma) const {
    uint64_t offset = avma - base_avma_;
    uint64_t index = offset / 8;
    if (offset % 8 != 0 || index >= word_count_) return std::nullopt;
    uint64_t mask = masks_[index / 64];
    uint64_t bit = 1ull << (index % 64);
    if ((mask & bit) == 0) return 0;
    return words_[ranks_[index / 64] + std::popcount(mask & (bit - 1))];
  }

 private:
  uint64_t base_avma_ = 0;
  uint32_t word_count_ = 0;
  std::vector<uint64_t> masks_;
  std::vector<uint32_t> ranks_;  // set bits before each mask
  std::vector<uint64_t> words_;
};

}  // namespace stackd
