#include "daemon/hooks/on_dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "daemon/log/log.h"

namespace stackd {
namespace {

using ::testing::HasSubstr;

bool Eventually(const std::function<bool()>& holds) {
  for (int64_t until_ns = MonotonicNs() + 20 * kNsPerSecond; MonotonicNs() < until_ns; usleep(1000)) {
    if (holds()) return true;
  }
  return holds();
}

class OnDumpTest : public testing::Test {
 protected:
  OnDumpTest() { EXPECT_NE(mkdtemp(dir_.data()), nullptr); }
  ~OnDumpTest() override { std::filesystem::remove_all(dir_); }

  std::unique_ptr<OnDump> Start(const std::string& script, int64_t timeout_ns = 20 * kNsPerSecond, int64_t burst = 3) {
    std::string program = dir_ + "/program";
    std::ofstream(program) << "#!/bin/sh\n" << script << "\n";
    EXPECT_EQ(chmod(program.c_str(), 0700), 0);
    auto action = OnDump::Start({.program = program,
                                 .address = "unix:/x",
                                 .timeout_ns = timeout_ns,
                                 .burst = burst,
                                 .interval_ns = 3600 * kNsPerSecond});
    EXPECT_TRUE(action.has_value()) << action.error().message;
    return std::move(*action);
  }
  std::string Read(const std::string& name) {
    std::stringstream text;
    text << std::ifstream(dir_ + "/" + name).rdbuf();
    return text.str();
  }

  std::string dir_ = "/tmp/on-dump-XXXXXX";
};

TEST_F(OnDumpTest, GivesTheProgramTheNameTheTriggerAndWhereToAsk) {
  auto action = Start("echo $# $1 $STACKD_TRIGGER $STACKD_ADDRESS $(readlink /proc/self/fd/0) > " + dir_ + "/new; mv " +
                      dir_ + "/new " + dir_ + "/out");
  action->Add("processes/1-2/dumps/3", "CRASH");
  ASSERT_TRUE(Eventually([&] { return std::filesystem::exists(dir_ + "/out"); }));
  EXPECT_EQ(Read("out"), "1 processes/1-2/dumps/3 CRASH unix:/x /dev/null\n");
}

TEST_F(OnDumpTest, LogsWhatItPrintsUpToALimit) {
  testing::internal::CaptureStderr();
  StartLog(LogFormat::kJson, LogLevel::kInfo);
  auto action = Start("echo hello; head -c 1000000 /dev/zero | tr '\\0' x; exit 3");
  action->Add("processes/1-2/dumps/3", "CRASH");
  ASSERT_TRUE(Eventually([&] { return action->failures() == 1; }));
  action.reset();
  std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("exit code 3"));
  EXPECT_THAT(log, HasSubstr("hello"));
  EXPECT_LT(log.size(), 3000u);
}

TEST_F(OnDumpTest, KillsAProgramThatTakesTooLongWithItsChildren) {
  auto action = Start("sleep 1000 & echo $! > " + dir_ + "/child; wait", 200 * kNsPerMs);
  action->Add("processes/1-2/dumps/3", "CRASH");
  ASSERT_TRUE(Eventually([&] { return action->failures() == 1; }));
  pid_t child = atoi(Read("child").c_str());
  ASSERT_GT(child, 0);
  EXPECT_TRUE(Eventually([&] { return kill(child, 0) != 0; }));
}

TEST_F(OnDumpTest, DoesNotWaitForAChildThatKeepsTheOutputOpen) {
  auto action = Start("sleep 5 &");
  int64_t begin_ns = MonotonicNs();
  action->Add("processes/1-2/dumps/1", "CRASH");
  action->Add("processes/1-2/dumps/2", "CRASH");
  ASSERT_TRUE(Eventually([&] { return action->runs() == 2; }));
  EXPECT_LT(MonotonicNs() - begin_ns, 4 * kNsPerSecond);
}

TEST_F(OnDumpTest, RunsNoMoreThanItMayAndCountsTheRest) {
  auto action = Start("true");
  for (int i = 0; i < 10; i++) action->Add("processes/1-2/dumps/3", "CRASH");
  EXPECT_EQ(action->dropped(), 7);
  ASSERT_TRUE(Eventually([&] { return action->runs() == 3; }));
}

TEST_F(OnDumpTest, EndsWithoutWaitingForTheProgram) {
  auto action = Start("touch " + dir_ + "/begun; sleep 1000");
  action->Add("processes/1-2/dumps/3", "CRASH");
  ASSERT_TRUE(Eventually([&] { return std::filesystem::exists(dir_ + "/begun"); }));
  int64_t begin_ns = MonotonicNs();
  action.reset();
  EXPECT_LT(MonotonicNs() - begin_ns, 5 * kNsPerSecond);
}

TEST_F(OnDumpTest, RefusesWhatIsNoProgram) {
  auto name = OnDump::Start({.program = "mail"});
  ASSERT_FALSE(name.has_value());
  EXPECT_THAT(name.error().message, HasSubstr("with a slash"));
  auto folder = OnDump::Start({.program = "/tmp"});
  ASSERT_FALSE(folder.has_value());
  EXPECT_THAT(folder.error().message, HasSubstr("/tmp is not a program"));
}

}  // namespace
}  // namespace stackd
