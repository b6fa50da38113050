#include "daemon/capture/stack_copy.h"

#include <utility>

namespace stackd {

StackCopy::StackCopy(uint64_t base_avma, uint32_t word_count, std::vector<uint64_t> masks, std::vector<uint64_t> words,
                     uint64_t outer_base_avma, uint32_t outer_word_count)
    : base_avma_(base_avma),
      word_count_(word_count),
      outer_base_avma_(outer_base_avma),
      outer_word_count_(outer_word_count),
      masks_(std::move(masks)),
      words_(std::move(words)) {
  ranks_.reserve(masks_.size());
  uint32_t rank = 0;
  for (uint64_t mask : masks_) {
    ranks_.push_back(rank);
    rank += static_cast<uint32_t>(std::popcount(mask));
  }
}

}  // namespace stackd
