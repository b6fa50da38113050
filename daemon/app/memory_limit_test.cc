#include "daemon/app/memory_limit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace stackd {
namespace {

constexpr int64_t kMachineBytes = int64_t{1} << 40;

class MemoryLimitTest : public testing::Test {
 protected:
  MemoryLimitTest() { root_ = mkdtemp(path_); }
  ~MemoryLimitTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& folder, const std::string& file, const std::string& text) const {
    std::filesystem::create_directories(root_ + folder);
    std::ofstream(root_ + folder + "/" + file) << text << "\n";
  }

  int64_t Limit(const std::string& cgroup_text) const { return MemoryLimitBytes(cgroup_text, root_, kMachineBytes); }

  char path_[32] = "/tmp/memory-limit-XXXXXX";
  std::string root_;
};

TEST_F(MemoryLimitTest, IsTheLeastOfTheCgroupAndThoseAboveIt) {
  Write("/pods/pod/box", "memory.max", "300");
  Write("/pods/pod", "memory.max", "200");
  Write("/pods", "memory.max", "max");
  EXPECT_EQ(Limit("0::/pods/pod/box\n"), 200);
  Write("/pods/pod", "memory.max", "max");
  EXPECT_EQ(Limit("0::/pods/pod/box\n"), 300);
}

TEST_F(MemoryLimitTest, KnowsVersion1) {
  Write("/memory/docker/1", "memory.limit_in_bytes", "268435456");
  Write("/memory", "memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(Limit("3:cpu,cpuacct:/docker/1\n2:memory:/docker/1\n0::/docker/1\n"), 268435456);
}

TEST_F(MemoryLimitTest, InANamespaceTheRootHasTheLimit) {
  Write("", "memory.max", "5000");
  EXPECT_EQ(Limit("0::/../../elsewhere\n"), 5000);
}

TEST_F(MemoryLimitTest, WithoutCgroupsItIsTheMachines) {
  EXPECT_EQ(Limit(""), kMachineBytes);
  EXPECT_EQ(Limit("0::/\n"), kMachineBytes);
  EXPECT_EQ(Limit("no sense\n:\n"), kMachineBytes);
  EXPECT_GT(MemoryLimitBytes(), 1 << 20);
}

}  // namespace
}  // namespace stackd
