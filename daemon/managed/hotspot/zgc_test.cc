#include "daemon/managed/hotspot/zgc.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>

namespace stackd::hotspot {
namespace {

constexpr uint64_t kOffsetBits = 42, kOffsetMask = (uint64_t{1} << kOffsetBits) - 1, kBase = kOffsetMask + 1;
constexpr uint64_t kPageBits = 21;

// A made-up VM in this process's memory, with objects in the second page of its heap, up to 0x1000 from its begin.
class ZgcTest : public testing::Test {
 protected:
  ZgcTest() : memory_(files_) {
    Fd own(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(files_.SetMemory(&own));
    layout_.heap_avma = At(heap_);
    layout_.page_bits = kPageBits;
    layout_.page_top = 0;
    layout_.globals_avma = At(globals_);
    layout_.offset_mask = 0;
  }

  void HasTwoGenerations() {
    layout_.good_mask = 8;
    layout_.bad_mask = 16;
    layout_.shift = 24;
  }

  std::optional<ZgcReferences> Open() {
    memory_.Forget();
    return ZgcReferences::Open(&memory_, layout_);
  }

  template <typename T>
  static uint64_t At(const T& object) {
    return reinterpret_cast<uint64_t>(&object);
  }

  static constexpr uint64_t kObject = (uint64_t{1} << kPageBits) + 0x100;

  ProcessFiles files_;
  ProcessMemory memory_;
  ZgcLayout layout_;
  uint64_t page_ = kObject - 0x100 + 0x1000;  // where its objects end
  std::array<uint64_t, 4> pages_ = {0, At(page_), 0, 0};
  const uint64_t pages_avma_ = At(pages_), heap_ = At(pages_avma_);
  uint64_t mask_ = kOffsetMask, good_ = 1 << 13, bad_ = 0b1101 << 12, shift_ = 14;
  const std::array<uint64_t, 4> variables_ = {At(mask_), At(good_), At(bad_), At(shift_)};
  const uint64_t globals_ = At(variables_);
};

TEST_F(ZgcTest, AnAddressIsTheSameInEachViewOfOneGeneration) {
  auto references = Open();
  ASSERT_TRUE(references);
  for (int view = 0; view < 3; ++view) EXPECT_EQ(references->At(kObject | kBase << view), kBase | kObject);
  EXPECT_EQ(references->At(0), 0);
  EXPECT_FALSE(references->has_moved());
}

TEST_F(ZgcTest, AnAddressStandsAboveTheColoursOfTwoGenerations) {
  HasTwoGenerations();
  auto references = Open();
  ASSERT_TRUE(references);
  // Good ones and others: what is remapped how says where the address is.
  for (int bit = 12; bit < 16; ++bit) {
    EXPECT_EQ(references->At((kBase | kObject) << (bit + 1) | uint64_t{1} << bit | 0xff0), kBase | kObject) << bit;
  }
  EXPECT_EQ(references->At(0), 0);
  EXPECT_EQ(references->At(good_ | 0xff0), 0) << "null has colours too";
  EXPECT_EQ(references->Plain(kBase | kObject), kBase | kObject);
  EXPECT_FALSE(references->has_moved());
}

TEST_F(ZgcTest, WhatWasMovedIsNotFollowed) {
  for (uint64_t offset : {uint64_t{1} << (kPageBits + 1), kObject + 0x1000}) {
    auto references = Open();
    ASSERT_TRUE(references);
    EXPECT_EQ(references->At(kBase | offset), 0);
    EXPECT_TRUE(references->has_moved());
  }
  pages_[1] |= 1;
  auto references = Open();
  ASSERT_TRUE(references);
  EXPECT_EQ(references->At(kBase | kObject), 0) << "the page is being moved";
}

TEST_F(ZgcTest, WhatMakesNoSenseIsNotRead) {
  HasTwoGenerations();
  shift_ = 16;
  EXPECT_FALSE(Open()) << "another place of the address";
  shift_ = 14;
  mask_ = kOffsetMask - 1;
  EXPECT_FALSE(Open()) << "a mask with a hole";
  mask_ = kOffsetMask;
  EXPECT_TRUE(Open());
  mask_ = 0;
  EXPECT_FALSE(Open()) << "before the heap is there";
}

}  // namespace
}  // namespace stackd::hotspot
