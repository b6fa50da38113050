#include "daemon/app/install_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace stackd {
namespace {

using testing::HasSubstr;

class InstallAgentTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/install-agent-XXXXXX";
    folder_ = std::filesystem::path(mkdtemp(pattern.data())).lexically_normal();
    agent_ = folder_ + "/" + kAgentFileName;
    Fill(agent_, "the agent");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static void Fill(const std::string& path, const std::string& content) { std::ofstream(path) << content; }
  static std::string ContentOf(const std::string& path) {
    std::stringstream content;
    content << std::ifstream(path).rdbuf();
    return content.str();
  }
  static ino_t FileNumber(const std::string& path) {
    struct stat status = {};
    stat(path.c_str(), &status);
    return status.st_ino;
  }

  std::string folder_;
  std::string agent_;
};

TEST_F(InstallAgentTest, CopiesIntoAFolderThatItMakesForEverybodyToRead) {
  const mode_t before = umask(0077);
  const Result<void> done = InstallAgent(agent_, folder_ + "/run/agent");
  umask(before);
  ASSERT_TRUE(done) << done.error().message;
  const std::string copy = folder_ + "/run/agent/" + kAgentFileName;
  EXPECT_EQ("the agent", ContentOf(copy));
  struct stat status = {};
  ASSERT_EQ(0, stat(copy.c_str(), &status));
  EXPECT_EQ(0755u, status.st_mode & 07777);
}

TEST_F(InstallAgentTest, ReplacesAnOlderOneWithoutWritingToItsFile) {
  const std::string dir = folder_ + "/agent";
  ASSERT_TRUE(InstallAgent(agent_, dir));
  const std::string copy = dir + "/" + kAgentFileName;
  std::filesystem::create_hard_link(copy, folder_ + "/mapped");
  Fill(agent_, "a newer agent");
  ASSERT_TRUE(InstallAgent(agent_, dir));
  EXPECT_EQ("a newer agent", ContentOf(copy));
  EXPECT_EQ("the agent", ContentOf(folder_ + "/mapped"));
}

TEST_F(InstallAgentTest, LeavesTheSameOneAlone) {
  const std::string dir = folder_ + "/agent";
  ASSERT_TRUE(InstallAgent(agent_, dir));
  const ino_t first = FileNumber(dir + "/" + kAgentFileName);
  ASSERT_TRUE(InstallAgent(agent_, dir));
  EXPECT_EQ(first, FileNumber(dir + "/" + kAgentFileName));
}

TEST_F(InstallAgentTest, SaysWhatIsInTheWay) {
  Fill(folder_ + "/file", "");
  const Result<void> done = InstallAgent(agent_, folder_ + "/file/agent");
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr(folder_ + "/file/agent"));
}

TEST_F(InstallAgentTest, LeavesNothingBehindWhereItCannotReplace) {
  std::filesystem::create_directories(folder_ + "/agent/" + kAgentFileName + "/in the way");
  EXPECT_FALSE(InstallAgent(agent_, folder_ + "/agent"));
  EXPECT_EQ(1, std::distance(std::filesystem::directory_iterator(folder_ + "/agent"), {}));
}

TEST_F(InstallAgentTest, FindsTheAgentWhereTheImageHasIt) {
  std::filesystem::create_directories(folder_ + "/usr/bin");
  std::filesystem::create_directories(folder_ + "/usr/lib/stackd");
  const std::string there = folder_ + "/usr/lib/stackd/" + kAgentFileName;
  Fill(there, "");
  EXPECT_EQ(there, FindAgent(folder_ + "/usr/bin/stackd").value());
  EXPECT_EQ(agent_, FindAgent(folder_ + "/stackd").value());
  EXPECT_FALSE(FindAgent("/nowhere/bin/stackd"));
}

TEST_F(InstallAgentTest, IsAskedForByItsNameAndAFolder) {
  const char* other[] = {"stackd", "--dir", "/tmp"};
  EXPECT_FALSE(InstallAgentIfAsked(3, other));
  const char* without[] = {"stackd", "install-agent"};
  EXPECT_EQ(2, InstallAgentIfAsked(2, without));
  const char* flag[] = {"stackd", "install-agent", "--help"};
  EXPECT_EQ(2, InstallAgentIfAsked(3, flag));
}

}  // namespace
}  // namespace stackd
