#include "daemon/outside/outside_capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "daemon/base/clock.h"
#include "daemon/modules/address_map.h"

namespace stackd {
namespace {

using testing::Contains;
using testing::HasSubstr;

constexpr uint64_t kSecret = 0x5ec2e75ec2e75ec2;

// A child with a thread that sleeps below a secret, and one that spins.
class OutsideCaptureTest : public testing::Test {
 protected:
  void SetUp() override {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    child_ = fork();
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::thread([] {
        pthread_setname_np(pthread_self(), "spins");
        volatile uint64_t rounds = 0;
        while (true) rounds = rounds + 1;
      }).detach();
      volatile uint64_t secrets[64];
      for (volatile uint64_t& word : secrets) word = kSecret;
      (void)!write(ready[1], "", 1);
      for (;;) pause();
    }
    char byte;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    for (std::string call; !call.starts_with(std::to_string(SYS_pause) + " ");) {
      std::getline(std::ifstream("/proc/" + std::to_string(child_) + "/syscall"), call);
    }
  }
  void TearDown() override {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }

  std::shared_ptr<Capture> Read(bool may_stop) {
    auto outside = OutsideCapture::Open("/proc", child_);
    EXPECT_TRUE(outside) << outside.error().message;
    auto capture = (*outside)->Read({.deadline_ns = MonotonicNs() + 10 * kNsPerSecond, .may_stop = may_stop});
    EXPECT_TRUE(capture) << capture.error().message;
    return *capture;
  }
  static const ThreadCapture& Named(const Capture& capture, const std::string& name) {
    return *std::ranges::find(capture.threads, name, &ThreadCapture::name);
  }

  pid_t child_ = 0;
};

TEST_F(OutsideCaptureTest, HasAllThreadsAndNoSecrets) {
  const auto capture = Read(/*may_stop=*/true);
  ASSERT_EQ(capture->threads.size(), 2u);
  for (const ThreadCapture& thread : capture->threads) {
    EXPECT_EQ(thread.status, ThreadStatus::kCaptured);
    EXPECT_TRUE(thread.has_stack);
    EXPECT_GT(thread.stack.words().size(), 3u);
    EXPECT_THAT(thread.stack.words(), testing::Not(Contains(kSecret)));
  }
  const ThreadCapture& spins = Named(*capture, "spins");
  EXPECT_EQ(spins.registers.known, Registers::kAll);
  EXPECT_GT(spins.pause_ns, 0);
  const ThreadCapture& sleeps = *std::ranges::find(capture->threads, child_, &ThreadCapture::tid);
  ASSERT_TRUE(sleeps.call);
  EXPECT_EQ(sleeps.call->number, static_cast<uint32_t>(SYS_pause));
  EXPECT_EQ(sleeps.pause_ns, 0);
}

TEST_F(OutsideCaptureTest, StopsNoThreadWhereItMayNot) {
  const auto capture = Read(/*may_stop=*/false);
  const ThreadCapture& spins = Named(*capture, "spins");
  EXPECT_EQ(spins.status, ThreadStatus::kRunning);
  EXPECT_FALSE(spins.has_stack);
  EXPECT_FALSE(capture->partial);
}

TEST_F(OutsideCaptureTest, DescribesTheProcess) {
  const auto capture = Read(/*may_stop=*/true);
  EXPECT_EQ(capture->process.pid, child_);
  EXPECT_TRUE(capture->process.id.starts_with(std::to_string(child_) + "-"));
  EXPECT_EQ(capture->process.uid, static_cast<int32_t>(geteuid()));
  EXPECT_EQ(std::filesystem::read_symlink("/proc/self/exe"), capture->process.executable);
  EXPECT_NE(capture->map->Find(reinterpret_cast<uint64_t>(&kSecret)), nullptr);
}

TEST_F(OutsideCaptureTest, SaysThatTheProcessHasEnded) {
  auto outside = OutsideCapture::Open("/proc", child_);
  ASSERT_TRUE(outside);
  kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
  auto capture = (*outside)->Read({.deadline_ns = MonotonicNs() + kNsPerSecond});
  if (capture) {
    EXPECT_TRUE((*capture)->partial);
    EXPECT_THAT((*capture)->notes, Contains(HasSubstr("ended")));
  }
  child_ = fork();
  if (child_ == 0) _exit(0);
}

TEST_F(OutsideCaptureTest, OpensRegularFilesThatAreMapped) {
  auto process = LiveProcess::Open("/proc", child_);
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
}

}  // namespace
}  // namespace stackd
