#include "daemon/process/open_below.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

namespace stackd {
namespace {

using Open = Fd (*)(const Fd&, const char*, int);

class OpenBelowTest : public testing::TestWithParam<Open> {
 protected:
  Fd Try(const Fd& folder, const std::string& path, int flags = O_RDONLY) {
    return GetParam()(folder, path.c_str(), flags);
  }

  const Fd own_{open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC)};
};

TEST_P(OpenBelowTest, FilesOfTheProcessAreOpened) {
  const std::string thread = "task/" + std::to_string(gettid());
  for (const std::string& path : {std::string("stat"), std::string("status"), thread + "/comm", thread + "/schedstat"}) {
    const Fd fd = Try(own_, path);
    ASSERT_TRUE(fd.valid()) << path << ": " << strerror(errno);
    char byte;
    EXPECT_EQ(read(fd.get(), &byte, 1), 1) << path;
  }
  const Fd tasks = Try(own_, "task", O_PATH | O_DIRECTORY);
  EXPECT_TRUE(Try(tasks, std::to_string(gettid()) + "/comm").valid());
}

TEST_P(OpenBelowTest, NothingElseIs) {
  for (const char* path : {"..", "../..", "../1/comm", "task/../../1/comm", "/etc/passwd", "root/etc/passwd", "cwd", "exe",
                           "fd/0", "nothing", "task/nothing/comm", ""}) {
    EXPECT_FALSE(Try(own_, path).valid()) << path;
  }
  EXPECT_FALSE(Try(Fd(), "stat").valid());
}

TEST_P(OpenBelowTest, AFolderThatIsNotOfProcfsIsNoneAndItsFifoIsNotWaitedFor) {
  char name[] = "/tmp/stackd_below_XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  ASSERT_EQ(mkfifo((std::string(name) + "/stat").c_str(), 0600), 0);
  const Fd folder(open(name, O_PATH | O_DIRECTORY | O_CLOEXEC));
  EXPECT_FALSE(Try(folder, "stat").valid());
  std::filesystem::remove_all(name);
}

INSTANTIATE_TEST_SUITE_P(BothWays, OpenBelowTest, testing::Values(&OpenBelow, &OpenBelowStepByStep));

}  // namespace
}  // namespace stackd
