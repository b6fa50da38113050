extern "C" {
#include "agent/maps/perf_map.h"

#include "agent/sys/private_fd.h"
}

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace {

class PerfMapTest : public testing::Test {
 protected:
  ~PerfMapTest() override { std::filesystem::remove(path_); }

  static int Open() {
    const int fd = stackd_perf_map_open();
    if (fd >= 0) stackd_own_fd_drop(fd);
    return fd >= 0 ? 0 : fd;
  }

  const std::string path_ = "/tmp/perf-" + std::to_string(getpid()) + ".map";
};

TEST_F(PerfMapTest, IsThatOfThisProcess) {
  EXPECT_TRUE(stackd_perf_map_is_at(path_.c_str()));
  EXPECT_FALSE(stackd_perf_map_is_at("/tmp/perf-1.map"));
  EXPECT_FALSE(stackd_perf_map_is_at((path_ + "/../other").c_str()));
  EXPECT_EQ(Open(), -ENOENT);
  std::ofstream(path_) << "1000 10 name\n";
  EXPECT_EQ(Open(), 0);
}

TEST_F(PerfMapTest, IsARegularFileOfTheUserUnderOneName) {
  std::filesystem::create_directory(path_);
  EXPECT_EQ(Open(), -EBADF);
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(Open(), -EBADF) << "and it is not waited for";
  std::filesystem::remove(path_);

  const std::string elsewhere = path_ + ".elsewhere";
  std::ofstream(elsewhere) << "1000 10 name\n";
  std::filesystem::create_symlink(elsewhere, path_);
  EXPECT_EQ(Open(), -ELOOP);
  std::filesystem::remove(path_);
  std::filesystem::create_hard_link(elsewhere, path_);
  EXPECT_EQ(Open(), -EPERM);
  std::filesystem::remove(elsewhere);
  EXPECT_EQ(Open(), 0);
}

}  // namespace
