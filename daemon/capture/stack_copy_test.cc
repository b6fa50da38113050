#include "daemon/capture/stack_copy.h"

#include <gtest/gtest.h>

namespace stackd {
namespace {

TEST(StackCopy, GivesKeptWordsAndZeroForOthers) {
  std::vector<uint64_t> masks(3);
  std::vector<uint64_t> words;
  for (uint32_t index : {0u, 1u, 5u, 63u, 64u, 100u, 130u}) {
    masks[index / 64] |= uint64_t{1} << (index % 64);
    words.push_back(1000 + index);
  }
  StackCopy stack(0x1000, 131, masks, words);
  EXPECT_EQ(stack.end_avma(), 0x1000u + 131 * 8);
  for (uint64_t index = 0; index < 131; ++index) {
    bool kept = (masks[index / 64] >> (index % 64) & 1) != 0;
    EXPECT_EQ(stack.Read(0x1000 + 8 * index), kept ? 1000 + index : 0) << index;
  }
}

TEST(StackCopy, HasNothingOutsideOrBetweenWords) {
  StackCopy stack(0x1000, 2, {3}, {1, 2});
  EXPECT_EQ(stack.Read(0xff8), std::nullopt);
  EXPECT_EQ(stack.Read(0x1010), std::nullopt);
  EXPECT_EQ(stack.Read(0x1004), std::nullopt);
  EXPECT_EQ(stack.Read(0), std::nullopt);
  EXPECT_EQ(stack.Read(~uint64_t{7}), std::nullopt);
  EXPECT_EQ(StackCopy().Read(0), std::nullopt);
}

}  // namespace
}  // namespace stackd
