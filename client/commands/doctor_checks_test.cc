#include "client/commands/doctor_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace stackd {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> BadOnes(const std::vector<Finding>& findings) {
  std::vector<std::string> texts;
  for (const Finding& finding : findings) {
    if (finding.grade == Finding::kBad) texts.push_back(finding.text + " -> " + finding.way_out);
  }
  return texts;
}

constexpr char kMaps[] = "7f00-7f01 r-xp 0 00:00 1 /lib/x86_64-linux-gnu/ld-linux-x86-64.so.2\n";
constexpr char kAgentMap[] = "7f02-7f03 r-xp 0 00:00 2 /opt/libstackd_agent.so\n";
// Signal 34 is bit 33.
constexpr char kHandled[] = "SigBlk:\t0000000000000000\nSigCgt:\t0000000200000000\n";

// A /proc with one process.
class DoctorTest : public testing::Test {
 protected:
  void SetUp() override {
    char dir[] = "/tmp/stackd_doctor_XXXXXX";
    ASSERT_NE(mkdtemp(dir), nullptr);
    dir_ = dir;
    std::filesystem::create_directory(dir_ + "/7");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void Write(const std::string& file, const std::string& text) { std::ofstream(dir_ + "/7/" + file) << text; }

  std::string dir_;
};

TEST_F(DoctorTest, FindsNothingWrongWithAProcessThatIsFine) {
  Write("maps", std::string(kMaps) + kAgentMap);
  Write("environ", std::string("STACKD_DIR=/tmp/s\0", 18));
  Write("status", kHandled);
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, "/tmp/s")), testing::IsEmpty());
}

TEST_F(DoctorTest, SaysThatThereIsNoSuchProcess) {
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 8, "/tmp/s")), Contains(HasSubstr("there is no process 8")));
}

TEST_F(DoctorTest, SaysHowToLoadTheAgent) {
  Write("maps", kMaps);
  Write("environ", "");
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, "/run/stackd")), Contains(HasSubstr("start the process with LD_PRELOAD=")));
}

TEST_F(DoctorTest, SaysThatAStaticProgramIgnoresPreloading) {
  Write("maps", "400000-500000 r-xp 0 00:00 1 /bin/static\n");
  Write("environ", "LD_PRELOAD=/opt/libstackd_agent.so");
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, "/run/stackd")), Contains(HasSubstr("linked statically")));
}

TEST_F(DoctorTest, SaysThatTheAgentIsSwitchedOffOrLooksElsewhere) {
  Write("maps", std::string(kMaps) + kAgentMap);
  Write("environ", std::string("STACKD_DISABLE=1\0STACKD_DIR=/elsewhere\0", 39));
  Write("status", kHandled);
  auto bad = BadOnes(CheckProcess(dir_, 7, "/run/stackd"));
  EXPECT_THAT(bad, Contains(HasSubstr("STACKD_DISABLE=1")));
  EXPECT_THAT(bad, Contains(HasSubstr("its STACKD_DIR is /elsewhere, not /run/stackd")));
}

TEST_F(DoctorTest, SaysThatTheAgentExpectsAnotherDaemon) {
  Write("maps", std::string(kMaps) + kAgentMap);
  Write("status", kHandled);
  Write("stackd.sock", "");
  const std::string folder = "STACKD_DIR=" + dir_ + "/7", uid = std::to_string(getuid());
  Write("environ", folder + '\0' + "STACKD_DAEMON_UID=" + uid + '\0');
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, dir_ + "/7")), testing::IsEmpty());
  Write("environ", folder + '\0' + "STACKD_DAEMON_UID=" + uid + "1" + '\0');
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, dir_ + "/7")), Contains(HasSubstr("stackd.sock belongs to uid " + uid)));
}

TEST_F(DoctorTest, SaysThatTheAgentTrustsNoOtherUserWithoutBeingTold) {
  if (getuid() != 0) GTEST_SKIP() << "needs root to give a file away";
  Write("maps", std::string(kMaps) + kAgentMap);
  Write("status", std::string("Name:\tx\nUid:\t7\t1234\t7\t7\n") + kHandled);
  Write("stackd.sock", "");
  const std::string folder = dir_ + "/7", socket = folder + "/stackd.sock";
  Write("environ", "STACKD_DIR=" + folder + '\0');
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, folder)), testing::IsEmpty());
  ASSERT_EQ(chown(socket.c_str(), 4321, 4321), 0);
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, folder)), Contains(HasSubstr("STACKD_DAEMON_UID=4321")));
  Write("environ", "STACKD_DIR=" + folder + '\0' + "STACKD_DAEMON_UID=any" + '\0');
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, folder)), testing::IsEmpty());
  Write("environ", "STACKD_DIR=" + folder + '\0');
  ASSERT_EQ(chown(socket.c_str(), 1234, 1234), 0);
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, folder)), testing::IsEmpty());
  ASSERT_EQ(chown(socket.c_str(), 4321, 4321), 0);
  ASSERT_EQ(chown(folder.c_str(), 4321, 4321), 0);
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, folder)), testing::IsEmpty());
  ASSERT_EQ(chmod(folder.c_str(), 0777), 0);
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, folder)), Contains(HasSubstr("STACKD_DAEMON_UID=4321")));
}

TEST_F(DoctorTest, SaysThatNothingHandlesTheSignal) {
  Write("maps", std::string(kMaps) + kAgentMap);
  Write("environ", "");
  Write("status", "SigBlk:\t0\nSigCgt:\t0000000000000000\n");
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, "/run/stackd")), Contains(HasSubstr("nothing handles signal 34")));
}

TEST_F(DoctorTest, SaysWhatIsMissingInTheFolder) {
  auto bad = BadOnes(CheckDir(dir_));
  EXPECT_THAT(bad, Contains(HasSubstr("stackd.sock (for agents): No such file")));
  EXPECT_THAT(bad, Contains(HasSubstr("stackd --dir " + dir_)));
  EXPECT_THAT(BadOnes(CheckDir("/nonexistent")), Contains(HasSubstr("start stackd")));
}

}  // namespace
}  // namespace stackd
