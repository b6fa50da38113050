#include "daemon/managed/go/memory_batch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace stackd {
namespace {

constexpr size_t kPageBytes = 4096;

class MemoryBatchTest : public testing::Test {
 protected:
  MemoryBatchTest() {
    Fd mem(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(memory_.SetMemory(&mem));
    pages_ =
        static_cast<uint8_t*>(mmap(nullptr, 4 * kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (size_t i = 0; i < 4 * kPageBytes; ++i) pages_[i] = static_cast<uint8_t>(i / 7);
    munmap(pages_ + 2 * kPageBytes, kPageBytes);
  }
  ~MemoryBatchTest() override { munmap(pages_, 4 * kPageBytes); }

  void ExpectBytes(size_t piece, size_t offset, size_t size) {
    const auto bytes = batch_.Bytes(piece);
    ASSERT_EQ(bytes.size(), size);
    EXPECT_EQ(memcmp(bytes.data(), pages_ + offset, size), 0);
  }
  uint64_t Avma(size_t offset) const { return reinterpret_cast<uint64_t>(pages_) + offset; }

  ProcessFiles memory_;
  uint8_t* pages_;
  MemoryBatch batch_;
};

TEST_F(MemoryBatchTest, ReadsPiecesInAnyOrderWithGapsAndOverlaps) {
  batch_.Add(Avma(5000), 64);
  batch_.Add(Avma(16), 100);
  batch_.Add(Avma(50), 100);
  batch_.Add(Avma(50), 10);
  batch_.Read(memory_);
  ExpectBytes(0, 5000, 64);
  ExpectBytes(1, 16, 100);
  ExpectBytes(2, 50, 100);
  ExpectBytes(3, 50, 10);
}

TEST_F(MemoryBatchTest, ReadsWhatLiesBehindAHole) {
  batch_.Add(Avma(2 * kPageBytes - 64), 64);
  batch_.Add(Avma(2 * kPageBytes - 8), 16);
  batch_.Add(Avma(2 * kPageBytes + 8), 8);
  batch_.Add(Avma(3 * kPageBytes), 64);
  batch_.Read(memory_);
  ExpectBytes(0, 2 * kPageBytes - 64, 64);
  EXPECT_TRUE(batch_.Bytes(1).empty());
  EXPECT_TRUE(batch_.Bytes(2).empty());
  ExpectBytes(3, 3 * kPageBytes, 64);
}

TEST_F(MemoryBatchTest, DoesNotWrapAround) {
  batch_.Add(~uint64_t{0} - 7, 64);
  batch_.Add(Avma(0), 8);
  batch_.Read(memory_);
  EXPECT_TRUE(batch_.Bytes(0).empty());
  ExpectBytes(1, 0, 8);
}

TEST_F(MemoryBatchTest, CanBeUsedAgain) {
  batch_.Add(Avma(0), 4096);
  batch_.Read(memory_);
  batch_.Clear();
  EXPECT_EQ(batch_.Add(Avma(100), 8), 0u);
  batch_.Read(memory_);
  ExpectBytes(0, 100, 8);
}

}  // namespace
}  // namespace stackd
