#include "daemon/managed/hotspot/compressed_ints.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <vector>

namespace stackd::hotspot {
namespace {

// This process's own memory, read as another's.
class CompressedIntsTest : public testing::Test {
 protected:
  CompressedIntsTest() {
    Fd own(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(files_.SetMemory(&own));
  }

  CompressedInts Of(int32_t release, std::vector<uint8_t> bytes) {
    bytes_ = std::move(bytes);
    memory_.emplace(files_);
    return CompressedInts(&*memory_, reinterpret_cast<uint64_t>(bytes_.data()), release);
  }

  ProcessFiles files_;
  std::vector<uint8_t> bytes_;
  std::optional<ProcessMemory> memory_;
};

// Examples of the comment in HotSpot's unsigned5.hpp, and of compressedStream.hpp before it.
TEST_F(CompressedIntsTest, ReadsWhatReleasesUpTo19Write) {
  auto ints = Of(17, {0, 1, 191, 192, 0, 255, 1, 192, 192, 192, 192, 0});
  EXPECT_EQ(ints.Unsigned(), 0u);
  EXPECT_EQ(ints.Unsigned(), 1u);
  EXPECT_EQ(ints.Unsigned(), 191u);
  EXPECT_EQ(ints.Unsigned(), 192u);
  EXPECT_EQ(ints.Unsigned(), 255u + 64u);
  EXPECT_EQ(ints.Unsigned(), 192u * (1 + 64 + 64 * 64 + 64 * 64 * 64));
  EXPECT_TRUE(ints.ok());
}

TEST_F(CompressedIntsTest, ReadsWhatLaterReleasesWrite) {
  auto ints = Of(21, {1, 2, 191, 192, 1, 255, 2, 255, 255, 255, 255, 255});
  EXPECT_EQ(ints.Unsigned(), 0u);
  EXPECT_EQ(ints.Unsigned(), 1u);
  EXPECT_EQ(ints.Unsigned(), 190u);
  EXPECT_EQ(ints.Unsigned(), 191u);
  EXPECT_EQ(ints.Unsigned(), 254u + 64u);
  EXPECT_EQ(ints.Unsigned(), static_cast<uint32_t>(254ull * (1 + 64 + 4096 + 262144 + 16777216ull)));
  EXPECT_TRUE(ints.ok());
}

TEST_F(CompressedIntsTest, SignedOnesAlternate) {
  auto ints = Of(17, {0, 1, 2, 3, 4});
  EXPECT_EQ(ints.Signed(), 0);
  EXPECT_EQ(ints.Signed(), -1);
  EXPECT_EQ(ints.Signed(), 1);
  EXPECT_EQ(ints.Signed(), -2);
  EXPECT_EQ(ints.Signed(), 2);
}

TEST_F(CompressedIntsTest, ByteThatNobodyWritesIsAnEnd) {
  auto ints = Of(21, {0, 0});
  ints.Unsigned();
  EXPECT_FALSE(ints.ok());
}

TEST_F(CompressedIntsTest, MemoryThatCannotBeReadIsAnEnd) {
  memory_.emplace(files_);
  CompressedInts ints(&*memory_, 8, 17);
  EXPECT_EQ(ints.Unsigned(), 0u);
  EXPECT_FALSE(ints.ok());
}

}  // namespace
}  // namespace stackd::hotspot
