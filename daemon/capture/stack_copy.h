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
  // A thread on an alternate stack or a fiber has a second part, of its own stack: its masks and words follow.
  // Requires: words.size() == number of set bits; masks.size() == ceil(word_count / 64) + ceil(outer_word_count / 64).
  StackCopy(uint64_t base_avma, uint32_t word_count, std::vector<uint64_t> masks, std::vector<uint64_t> words,
            uint64_t outer_base_avma = 0, uint32_t outer_word_count = 0);

  uint64_t base_avma() const { return base_avma_; }
  uint64_t end_avma() const { return base_avma_ + 8ull * word_count_; }
  uint32_t word_count() const { return word_count_; }
  uint64_t outer_base_avma() const { return outer_base_avma_; }
  uint32_t outer_word_count() const { return outer_word_count_; }
  const std::vector<uint64_t>& masks() const { return masks_; }
  const std::vector<uint64_t>& words() const { return words_; }

  // Where the part that holds `avma` ends.
  uint64_t EndOfPart(uint64_t avma) const {
    bool is_outer = avma - outer_base_avma_ < 8ull * outer_word_count_;
    return is_outer ? outer_base_avma_ + 8ull * outer_word_count_ : end_avma();
  }

  // The aligned word at `avma`; nullopt outside the copy or unaligned.
  std::optional<uint64_t> Read(uint64_t avma) const {
    uint64_t offset = avma - base_avma_;
    uint64_t index = offset / 8;
    if (offset % 8 == 0 && index < word_count_) [[likely]]
      return At(index);
    uint64_t outer_offset = avma - outer_base_avma_;
    uint64_t outer_index = outer_offset / 8;
    if (outer_offset % 8 != 0 || outer_index >= outer_word_count_) return std::nullopt;
    return At((word_count_ + 63ull) / 64 * 64 + outer_index);
  }

 private:
  uint64_t At(uint64_t index) const {
    uint64_t mask = masks_[index / 64];
    uint64_t bit = 1ull << (index % 64);
    if ((mask & bit) == 0) return 0;
    return words_[ranks_[index / 64] + std::popcount(mask & (bit - 1))];
  }

  uint64_t base_avma_ = 0;
  uint32_t word_count_ = 0;
  uint64_t outer_base_avma_ = 0;
  uint32_t outer_word_count_ = 0;
  std::vector<uint64_t> masks_;
  std::vector<uint32_t> ranks_;  // set bits before each mask
  std::vector<uint64_t> words_;
};

}  // namespace stackd
