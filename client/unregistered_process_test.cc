#include "client/unregistered_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace stackd {
namespace {

using testing::HasSubstr;

// A /proc with one process, whose memory cannot be opened.
class UnregisteredProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    char dir[] = "/tmp/stackd_unregistered_XXXXXX";
    ASSERT_NE(mkdtemp(dir), nullptr);
    dir_ = dir;
    std::filesystem::create_directories(dir_ + "/7");
    std::filesystem::create_directories(dir_ + "/sys/kernel/yama");
    // Opening it fails for root, too.
    std::filesystem::create_symlink("mem", dir_ + "/7/mem");
    WriteStatus(geteuid());
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void WriteStatus(uid_t uid) { std::ofstream(dir_ + "/7/status") << "Name:\tx\nUid:\t1\t" << uid << "\t1\t1\n"; }
  void WriteScope(int scope) { std::ofstream(dir_ + "/sys/kernel/yama/ptrace_scope") << scope << "\n"; }
  Status Refusal(int pid = 7) {
    auto process = UnregisteredProcess::Open(dir_, pid);
    return process ? Status{Code::kInternal, "it was opened"} : process.error();
  }

  std::string dir_;
};

TEST_F(UnregisteredProcessTest, RefusalNamesYama) {
  WriteScope(1);
  EXPECT_THAT(Refusal().message, HasSubstr("ptrace_scope is 1, which forbids it without CAP_SYS_PTRACE"));
  EXPECT_EQ(Refusal().code, Code::kPermissionDenied);
  WriteScope(3);
  EXPECT_THAT(Refusal().message, HasSubstr("ptrace_scope is 3, which forbids it to everybody"));
}

TEST_F(UnregisteredProcessTest, RefusalNamesWhatElseItMayBe) {
  WriteScope(0);
  EXPECT_THAT(Refusal().message, HasSubstr("it may have capabilities that stackctl has not"));
}

TEST_F(UnregisteredProcessTest, RefusalNamesTheUser) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read the processes of all";
  WriteStatus(geteuid() + 1);
  EXPECT_THAT(Refusal().message, HasSubstr("it belongs to uid " + std::to_string(geteuid() + 1)));
}

TEST_F(UnregisteredProcessTest, RefusalNamesThePidNamespace) {
  EXPECT_THAT(Refusal(8).message, HasSubstr("there is no process 8 here"));
  EXPECT_EQ(Refusal(8).code, Code::kNotFound);
}

TEST_F(UnregisteredProcessTest, SaysWhatAnAgentWouldSay) {
  auto process = UnregisteredProcess::Open("/proc", getpid());
  ASSERT_TRUE(process) << process.error().message;
  const stackd_hello hello = process->Hello();
  EXPECT_EQ(process->name(), "processes/" + std::to_string(getpid()) + "-" + std::to_string(hello.start_ticks));
  EXPECT_NE(hello.start_ticks, 0);
  EXPECT_EQ(hello.uid, static_cast<int32_t>(geteuid()));
  EXPECT_EQ(std::filesystem::read_symlink("/proc/self/exe"), hello.exe);
  EXPECT_THAT(std::string(hello.argv0), HasSubstr("unregistered_process_test"));
  EXPECT_TRUE(hello.flags & STACKD_HELLO_NO_HANDLER);
}

TEST_F(UnregisteredProcessTest, OpensRegularFilesThatAreMapped) {
  auto process = UnregisteredProcess::Open("/proc", getpid());
  ASSERT_TRUE(process) << process.error().message;
  struct stat own, opened;
  ASSERT_EQ(stat("/proc/self/exe", &own), 0);
  for (const std::string& path :
       {std::string("/proc/self/exe"), std::filesystem::read_symlink("/proc/self/exe").string()}) {
    const Fd file = process->OpenMapped(path);
    ASSERT_TRUE(file.valid()) << path;
    ASSERT_EQ(fstat(file.get(), &opened), 0);
    EXPECT_EQ(opened.st_ino, own.st_ino);
  }
  EXPECT_FALSE(process->OpenMapped("/dev/zero").valid());
  EXPECT_FALSE(process->OpenMapped(dir_ + "/7/mem").valid());
}

}  // namespace
}  // namespace stackd
