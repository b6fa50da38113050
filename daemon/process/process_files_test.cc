#include "daemon/process/process_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

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

}  // namespace
}  // namespace stackd
