#include "daemon/outside/obstacles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace stackd {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// A /proc with one process, whose memory cannot be opened, and a reader without capabilities.
class ObstaclesTest : public testing::Test {
 protected:
  void SetUp() override {
    char dir[] = "/tmp/stackd_obstacles_XXXXXX";
    ASSERT_NE(mkdtemp(dir), nullptr);
    dir_ = dir;
    std::filesystem::create_directories(dir_ + "/7");
    std::filesystem::create_directories(dir_ + "/self");
    std::filesystem::create_directories(dir_ + "/sys/kernel/yama");
    // Opening it fails for root, too.
    std::filesystem::create_symlink("mem", dir_ + "/7/mem");
    WriteStatus(geteuid());
    WriteScope(0);
    WriteOwnCapabilities("0");
    std::ofstream(dir_ + "/7/stat") << "7 (a) b) S 1 7 7 0 -1 4194560 0 0 0 0\n";
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void WriteStatus(uid_t uid, const std::string& more = "") {
    std::ofstream(dir_ + "/7/status") << "Name:\tx\nState:\tS (sleeping)\nTgid:\t7\nUid:\t" << uid << "\t" << uid << "\t"
                                      << uid << "\t" << uid << "\n"
                                      << more;
  }
  void WriteScope(int scope) { std::ofstream(dir_ + "/sys/kernel/yama/ptrace_scope") << scope << "\n"; }
  void WriteOwnCapabilities(const std::string& mask) {
    std::ofstream(dir_ + "/self/status") << "Name:\ts\nCapPrm:\t" << mask << "\nCapEff:\t" << mask << "\n";
  }
  Obstacle First(int pid = 7) {
    const auto obstacles = FindObstacles(dir_, pid);
    EXPECT_EQ(obstacles.size(), 1u);
    return obstacles.empty() ? Obstacle() : obstacles.front();
  }

  std::string dir_;
};

TEST_F(ObstaclesTest, AreNoneForAChildOfOnesOwn) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    close(ends[1]);
    (void)!read(ends[0], &byte, 1);
    _exit(0);
  }
  EXPECT_THAT(FindObstacles("/proc", child), IsEmpty());
  close(ends[1]);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(FindObstacles("/proc", child).front().code, Code::kNotFound);
}

TEST_F(ObstaclesTest, NameYama) {
  WriteScope(1);
  EXPECT_THAT(First().text, HasSubstr("ptrace_scope is 1, which forbids it without CAP_SYS_PTRACE"));
  EXPECT_EQ(First().code, Code::kPermissionDenied);
  WriteScope(3);
  WriteOwnCapabilities("ffffffffffffffff");
  EXPECT_THAT(First().text, HasSubstr("ptrace_scope is 3, which forbids it to all"));
}

TEST_F(ObstaclesTest, NameTheUser) {
  WriteStatus(geteuid() + 1);
  EXPECT_THAT(First().text, HasSubstr("it belongs to uid " + std::to_string(geteuid() + 1)));
  EXPECT_THAT(First().way_out, HasSubstr("as that user"));
}

TEST_F(ObstaclesTest, NameCapabilities) {
  WriteStatus(geteuid(), "CapPrm:\t0000000000000400\n");
  EXPECT_THAT(First().text, HasSubstr("it has capabilities that stackctl has not"));
}

TEST_F(ObstaclesTest, NameWhatIsNoProcess) {
  EXPECT_THAT(First(8).text, HasSubstr("there is no process 8 here"));
  EXPECT_EQ(First(8).code, Code::kNotFound);
  std::ofstream(dir_ + "/7/status") << "Name:\tx\nState:\tZ (zombie)\nTgid:\t7\n";
  EXPECT_THAT(First().text, HasSubstr("zombie"));
  std::ofstream(dir_ + "/7/status") << "Name:\tx\nState:\tS (sleeping)\nTgid:\t6\n";
  EXPECT_THAT(First().text, HasSubstr("7 is a thread of process 6"));
  WriteStatus(0);
  std::ofstream(dir_ + "/7/stat") << "7 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0\n";
  EXPECT_THAT(First().text, HasSubstr("a thread of the kernel"));
}

TEST_F(ObstaclesTest, NameTheMachine) {
  std::string header(64, '\0');
  header.replace(0, 5,
                 std::string("\x7f"
                             "ELF\x01",
                             5));
  header[18] = 3;  // EM_386
  std::ofstream(dir_ + "/7/exe") << header;
  EXPECT_THAT(First().text, HasSubstr("is not read: 32-bit"));
}

TEST_F(ObstaclesTest, NameWhatElseItMayBe) { EXPECT_THAT(First().way_out, HasSubstr("seccomp")); }

}  // namespace
}  // namespace stackd
