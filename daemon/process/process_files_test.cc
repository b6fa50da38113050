#include "daemon/process/process_files.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/testing/fake_agent.h"

namespace stackd {
namespace {

TEST(ProcessFiles, AProcessCountsThreadsAsItself) {
  ProcessFiles files;
  std::vector<Fd> own = OwnFiles();
  ASSERT_TRUE(files.SetMemory(&own[0]) && files.SetMaps(&own[1]) && files.SetFolder(&own[2]));
  EXPECT_TRUE(files.CountsThreadsAs(files));
  EXPECT_FALSE(files.CountsThreadsAs(ProcessFiles()));
}

TEST(ProcessFiles, KnowsTheParentAsItselfDoes) {
  ProcessFiles files;
  EXPECT_EQ(files.ParentPid(), 0);
  std::vector<Fd> own = OwnFiles();
  ASSERT_TRUE(files.SetFolder(&own[2]));
  EXPECT_EQ(files.ParentPid(), getppid());
}

TEST(ProcessFiles, AnImageStandsForMemoryAndMaps) {
  ProcessFiles files;
  files.SetImage(
      [](uint64_t avma, std::span<uint8_t> bytes) -> int64_t {
        if (avma != 0x1000) return -EFAULT;
        bytes[0] = 7;
        return 1;
      },
      "1000-1001 r--p 00000000 00:00 0 \n");
  EXPECT_TRUE(files.has_memory() && files.has_maps() && files.is_image());
  EXPECT_FALSE(files.HasNoMemoryLeft());
  EXPECT_EQ(*files.ReadMemory(0x1000, 1), std::vector<uint8_t>{7});
  EXPECT_EQ(files.ReadMemory(0x2000, 1).error().message, "reading its memory: Bad address");
  uint8_t two[2];
  EXPECT_EQ(files.ReadSome(0x1000, two), 1u);
  EXPECT_EQ(files.memory_read_bytes(), 2);
  EXPECT_EQ(*files.ReadMaps(), "1000-1001 r--p 00000000 00:00 0 \n");
}

}  // namespace
}  // namespace stackd
