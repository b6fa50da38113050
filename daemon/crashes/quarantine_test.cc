#include "daemon/crashes/quarantine.h"

#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace stackd {
namespace {

class QuarantineTest : public testing::Test {
 protected:
  QuarantineTest() {
    std::string pattern = std::string(testing::TempDir()) + "/quarantine-XXXXXX";
    dir_ = mkdtemp(pattern.data());
    from_ = Fd(open(dir_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  ~QuarantineTest() override { std::filesystem::remove_all(dir_); }

  std::unique_ptr<Quarantine> Open() {
    auto quarantine = Quarantine::Open(dir_);
    EXPECT_TRUE(quarantine) << quarantine.error().message;
    return quarantine ? std::move(*quarantine) : nullptr;
  }
  void Make(const std::string& name, int64_t size_bytes) {
    std::ofstream(dir_ + "/" + name) << "x";
    std::filesystem::resize_file(dir_ + "/" + name, size_bytes);
  }
  size_t CountKept() const {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(dir_ + "/quarantine")) {
      count += !entry.path().filename().string().starts_with("attempts-");
    }
    return count;
  }

  std::string dir_;
  Fd from_;
};

TEST_F(QuarantineTest, CountsAttemptsThatDidNotEnd) {
  for (int attempts = 0; attempts < 3; ++attempts) {
    EXPECT_EQ(Open()->Attempts("a"), attempts);
    Open()->Begin("a");
  }
  EXPECT_EQ(Open()->Attempts("b"), 0);
  Open()->End("a");
  EXPECT_EQ(Open()->Attempts("a"), 0);
}

TEST_F(QuarantineTest, AnAttemptOfAProcessThatWasKilledIsNoted) {
  const pid_t child = fork();
  if (child == 0) {
    Open()->Begin("a");
    kill(getpid(), SIGKILL);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(Open()->Attempts("a"), 1);
}

TEST_F(QuarantineTest, KeepsAFileAndForgetsItsAttempts) {
  auto quarantine = Open();
  const std::string name = std::string(250, 'n');
  Make(name, 5);
  quarantine->Begin(name);
  const std::string kept = quarantine->Keep(from_.get(), name);
  EXPECT_TRUE(kept.starts_with(dir_ + "/quarantine/"));
  EXPECT_EQ(std::filesystem::file_size(kept), 5u);
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/" + name));
  EXPECT_EQ(quarantine->Attempts(name), 0);
  EXPECT_EQ(quarantine->Keep(from_.get(), "not there"), "");
}

TEST_F(QuarantineTest, KeepsSoManyFilesAndSoManyBytes) {
  auto quarantine = Open();
  for (size_t i = 0; i < Quarantine::kMaxFiles + 3; ++i) {
    Make("small", 1);
    quarantine->Keep(from_.get(), "small");
  }
  EXPECT_EQ(CountKept(), Quarantine::kMaxFiles);
  std::string last;
  for (int i = 0; i < 3; ++i) {
    Make("large", Quarantine::kMaxBytes / 2);
    last = quarantine->Keep(from_.get(), "large");
  }
  EXPECT_EQ(CountKept(), 2u);
  EXPECT_TRUE(std::filesystem::exists(last)) << "the oldest go";
}

TEST_F(QuarantineTest, IsForItsOwnerAlone) {
  ASSERT_EQ(mkdir((dir_ + "/quarantine").c_str(), 0777), 0);
  ASSERT_EQ(chmod((dir_ + "/quarantine").c_str(), 0777), 0);
  Open();
  struct stat status;
  ASSERT_EQ(stat((dir_ + "/quarantine").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700u);
}

TEST_F(QuarantineTest, IsNotALinkToAnotherFolder) {
  ASSERT_EQ(symlink("/tmp", (dir_ + "/quarantine").c_str()), 0);
  EXPECT_FALSE(Quarantine::Open(dir_));
}

}  // namespace
}  // namespace stackd
