#include "client/commands/process_checks.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace stackd {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
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
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, "/tmp/s")), IsEmpty());
}

TEST_F(DoctorTest, SaysThatThereIsNoSuchProcess) {
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 8, "/tmp/s")), Contains(HasSubstr("there is no process 8")));
}

TEST_F(DoctorTest, SaysThatWhatItMayNotReadTellsNothing) {
  // The maps of a process of another user can be opened, and nothing is in it.
  for (const bool is_there : {false, true}) {
    if (is_there) Write("maps", "");
    const auto findings = CheckProcess(dir_, 7, "/tmp/s");
    EXPECT_THAT(findings, ElementsAre(Field(&Finding::text, HasSubstr("/7/maps cannot be read"))));
    EXPECT_THAT(BadOnes(findings), IsEmpty());
  }
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

TEST_F(DoctorTest, SaysThatWhatAProcessSharesMakesNoSense) {
  Write("maps", std::string(kMaps) + kAgentMap);
  Write("status", kHandled);
  for (const char* level : {"stacks", "names", "memory", ""}) {
    Write("environ", std::string("STACKD_SHARE=") + level);
    EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, "/run/stackd")), Not(Contains(HasSubstr("STACKD_SHARE")))) << level;
  }
  Write("environ", "STACKD_SHARE=all");
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, "/run/stackd")),
              Contains(HasSubstr("STACKD_SHARE is all, which is none of stacks, names and memory")));
}

TEST_F(DoctorTest, SaysThatTheAgentExpectsAnotherDaemon) {
  Write("maps", std::string(kMaps) + kAgentMap);
  Write("status", kHandled);
  Write("stackd.sock", "");
  const std::string folder = "STACKD_DIR=" + dir_ + "/7", uid = std::to_string(getuid());
  Write("environ", folder + '\0' + "STACKD_DAEMON_UID=" + uid + '\0');
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, dir_ + "/7")), IsEmpty());
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
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, folder)), IsEmpty());
  ASSERT_EQ(chown(socket.c_str(), 4321, 4321), 0);
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, folder)), Contains(HasSubstr("STACKD_DAEMON_UID=4321")));
  Write("environ", "STACKD_DIR=" + folder + '\0' + "STACKD_DAEMON_UID=any" + '\0');
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, folder)), IsEmpty());
  Write("environ", "STACKD_DIR=" + folder + '\0');
  ASSERT_EQ(chown(socket.c_str(), 1234, 1234), 0);
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, folder)), IsEmpty());
  ASSERT_EQ(chown(socket.c_str(), 4321, 4321), 0);
  ASSERT_EQ(chown(folder.c_str(), 4321, 4321), 0);
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, folder)), IsEmpty());
  ASSERT_EQ(chmod(folder.c_str(), 0777), 0);
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, folder)), Contains(HasSubstr("STACKD_DAEMON_UID=4321")));
}

TEST_F(DoctorTest, SaysThatNothingHandlesTheSignal) {
  Write("maps", std::string(kMaps) + kAgentMap);
  Write("environ", "");
  Write("status", "SigBlk:\t0\nSigCgt:\t0000000000000000\n");
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, "/run/stackd")), Contains(HasSubstr("nothing handles signal 34")));
}

TEST_F(DoctorTest, SaysThatAProgramWithMoreRightsThanItsCallerHasNoAgent) {
  const Elf64_auxv_t entries[] = {{AT_PAGESZ, {4096}}, {AT_SECURE, {1}}, {AT_NULL, {0}}};
  Write("auxv", std::string(reinterpret_cast<const char*>(entries), sizeof(entries)));
  Write("maps", kMaps);
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, "/run/stackd")), ElementsAre(HasSubstr("more rights than its caller")));
}

TEST_F(DoctorTest, SaysThatASignalIsNoneOfTheAgents) {
  Write("maps", std::string(kMaps) + kAgentMap);
  Write("environ", std::string("STACKD_SIGNAL=7\0", 16));
  Write("status", kHandled);
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, "/run/stackd")),
              Contains(HasSubstr("its STACKD_SIGNAL is 7, which is not from 34 to 64")));
}

TEST_F(DoctorTest, SaysThatAFolderIsClosedToTheProcess) {
  Write("maps", std::string(kMaps) + kAgentMap);
  Write("environ", "STACKD_DIR=" + dir_ + "/7/sub" + '\0');
  std::filesystem::create_directory(dir_ + "/7/sub");
  ASSERT_EQ(chmod(dir_.c_str(), 0755), 0);
  ASSERT_EQ(chmod((dir_ + "/7").c_str(), 0700), 0);
  const std::string uid = std::to_string(getuid()), stranger = std::to_string(getuid() + 1);
  const auto of_user = [&](const std::string& user) {
    return "Uid:\t" + user + "\t" + user + "\t" + user + "\t" + user + "\nGid:\t9\t9\t9\t9\nGroups:\t8 \nCapEff:\t0\n" +
           kHandled;
  };
  Write("status", of_user(stranger));
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, dir_ + "/7/sub")),
              ElementsAre(AllOf(HasSubstr("/7 has mode 0700 and is closed to uid " + stranger), HasSubstr("chmod o+x"))));
  Write("status", of_user(uid));
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, dir_ + "/7/sub")), IsEmpty());
  Write("status", of_user(stranger).replace(of_user(stranger).find("CapEff:\t0"), 10, "CapEff:\t2"));
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, dir_ + "/7/sub")), IsEmpty());
}

TEST_F(DoctorTest, SaysThatTheFolderIsAnotherInTheProcess) {
  const std::string stackd_dir = dir_ + "/run", same = dir_ + "/7/root/other", another = dir_ + "/7/root" + stackd_dir;
  for (const std::string& folder : {stackd_dir, same, another}) std::filesystem::create_directories(folder);
  std::ofstream(stackd_dir + "/stackd.sock") << "";
  Write("maps", std::string(kMaps) + kAgentMap);
  Write("status", kHandled);
  Write("environ", "STACKD_DIR=" + stackd_dir + '\0');
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, stackd_dir)), ElementsAre(HasSubstr("is not there in the mount namespace")));
  std::ofstream(another + "/stackd.sock") << "";
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, stackd_dir)), ElementsAre(HasSubstr("is another file in the mount namespace")));
  // One folder under two names.
  std::filesystem::create_hard_link(stackd_dir + "/stackd.sock", same + "/stackd.sock");
  Write("environ", std::string("STACKD_DIR=/other\0", 18));
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, stackd_dir)), IsEmpty());
}

TEST_F(DoctorTest, NamesAFilterOfSystemCalls) {
  Write("maps", std::string(kMaps) + kAgentMap);
  Write("status", std::string(kHandled) + "Seccomp:\t2\n");
  const std::vector<Finding> findings = CheckProcess(dir_, 7, "/run/stackd");
  EXPECT_THAT(findings, Contains(Field(&Finding::text, HasSubstr("filter of system calls (seccomp)"))));
  EXPECT_THAT(BadOnes(findings), IsEmpty());
}

TEST_F(DoctorTest, TakesStackdForNoProgramOfTheUsers) {
  std::filesystem::create_symlink("/usr/bin/stackd", dir_ + "/7/exe");
  Write("maps", kMaps);
  EXPECT_THAT(BadOnes(CheckProcess(dir_, 7, "/run/stackd")), ElementsAre(HasSubstr("pid 7 is stackd itself here")));
}

TEST_F(DoctorTest, KnowsAConnectedProcessByItsStartWhateverItsPidIsInItsContainer) {
  std::vector<v1::Process> processes(3);
  processes[0].set_name("processes/1-4242");
  processes[1].set_name("processes/1-777-2");
  processes[2].set_name("processes/7-777");
  processes[2].set_pid(7);
  Write(
      "stat", "7 (a ) name) S" + [] {
        std::string zeros;
        for (int field = 4; field < 22; ++field) zeros += " 0";
        return zeros;
      }() + " 777 0\n");
  Write("status", "Name:\tx\nNSpid:\t7\t1\n");
  EXPECT_EQ(FindConnected(dir_, 7, processes), &processes[1]);
  Write("status", "Name:\tx\nNSpid:\t7\n");
  EXPECT_EQ(FindConnected(dir_, 7, processes), &processes[2]);
  // Pid 1 of this container is another process than pid 1 of that one.
  EXPECT_EQ(FindConnected(dir_, 8, {processes[0]}), nullptr);
}

}  // namespace
}  // namespace stackd
