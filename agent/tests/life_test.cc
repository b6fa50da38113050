// When the helper is there.
extern "C" {
#include "agent/helper/life.h"

#include "agent/signals/dump_signal.h"
#include "agent/sys/filtered.h"
#include "agent/sys/process_id.h"
}

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace {

constexpr int kDumpSignal = 34;

std::atomic<int> runs{0};
std::atomic<int> messages_taken{0};
int waits_for = -1;
int asks = -1;
stackd_own_fd wake_ends[2];

struct stat StatusOf(int fd) {
  struct stat status{};
  fstat(fd, &status);
  return status;
}

// Takes messages until it is to end, as the helper does.
void WaitForEnd() {
  runs++;
  char message;
  while (stackd_helper_poll(waits_for, POLLIN, UINT64_MAX) != -EINTR) {
    messages_taken += recv(waits_for, &message, sizeof(message), MSG_DONTWAIT) == 1;
  }
}

size_t CountThreads() {
  size_t count = 0;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* entry = readdir(tasks)) count += entry->d_name[0] != '.';
  closedir(tasks);
  return count;
}

class LifeTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    waits_for = ends[0];
    asks = ends[1];
    stackd_keep_pid();
    stackd_dump_signal_init(kDumpSignal);
    int pipe_ends[2];
    ASSERT_EQ(pipe2(pipe_ends, O_NONBLOCK), 0);
    for (int i = 0; i < 2; i++) wake_ends[i] = {pipe_ends[i], StatusOf(pipe_ends[i]).st_dev, StatusOf(pipe_ends[i]).st_ino};
    stackd_helper_wake_by(&wake_ends[0], &wake_ends[1]);
    EXPECT_EQ(stackd_helper_start(), -EPERM);
    stackd_helper_allow(WaitForEnd);
  }
};

TEST_F(LifeTest, ItStartsOnceAndHasItsName) {
  ASSERT_EQ(stackd_helper_start(), 0);
  const uint32_t tid = stackd_helper_tid();
  ASSERT_NE(tid, 0u);
  EXPECT_EQ(stackd_helper_start(), 0);
  EXPECT_EQ(stackd_helper_tid(), tid);
  EXPECT_EQ(CountThreads(), 2u);
}

TEST_F(LifeTest, AHoldEndsItAndTheLastReleaseStartsAnother) {
  ASSERT_EQ(stackd_helper_start(), 0);
  const int before = runs;
  stackd_helper_hold();
  EXPECT_EQ(stackd_helper_tid(), 0u);
  EXPECT_EQ(CountThreads(), 1u);
  EXPECT_EQ(stackd_helper_start(), -EPERM);
  stackd_helper_hold();
  stackd_helper_release();
  EXPECT_EQ(stackd_helper_tid(), 0u);
  stackd_helper_release();
  EXPECT_NE(stackd_helper_tid(), 0u);
  stackd_helper_hold();  // which waits for its end, so that it has begun
  EXPECT_GE(runs, before);
  stackd_helper_release();
}

TEST_F(LifeTest, ManyThreadsMayHoldItAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<bool> met{false};
  for (int i = 0; i < 4; i++) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < 500; turn++) {
        stackd_helper_hold();
        if (stackd_helper_tid() != 0) met = true;
        stackd_helper_release();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_FALSE(met);
  EXPECT_NE(stackd_helper_tid(), 0u);
}

TEST_F(LifeTest, OneThatIsToEndBeforeItRunsStillTakesAMessage) {
  // On one processor it does not run before its starter waits for its end.
  cpu_set_t before;
  cpu_set_t one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  ASSERT_EQ(stackd_helper_start(), 0);
  stackd_helper_hold();
  for (int life = 0; life < 20; life++) {
    const int taken = messages_taken;
    ASSERT_EQ(send(asks, "x", 1, 0), 1);
    stackd_helper_release();
    stackd_helper_hold();
    EXPECT_EQ(messages_taken, taken + 1);
  }
  stackd_helper_release();
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST_F(LifeTest, AChildHasNoneUntilItStartsOne) {
  ASSERT_EQ(stackd_helper_start(), 0);
  const pid_t child = fork();
  if (child == 0) {
    stackd_helper_life_reset_after_fork();
    stackd_keep_pid();
    const bool none = stackd_helper_tid() == 0 && CountThreads() == 1;
    const bool started = stackd_helper_start() == 0 && CountThreads() == 2;
    stackd_helper_hold();
    _exit(none && started && CountThreads() == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(LifeTest, UnderAFilterItDoesNotStart) {
  const pid_t child = fork();
  if (child == 0) {
    stackd_helper_life_reset_after_fork();
    stackd_set_filtered();
    uint64_t mask;
    _exit(stackd_helper_start() == -EPERM && !stackd_helper_stand_in(&mask) && CountThreads() == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
