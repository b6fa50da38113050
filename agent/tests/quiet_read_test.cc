extern "C" {
#include "agent/dump/quiet_read.h"

#include "agent/sys/private_fd.h"
}

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>

namespace {

// A thread that reads from an eventfd, again and again: it sleeps in one place each time.
class Sleeper {
 public:
  Sleeper() : thread_([this] { Run(); }) {
    while (tid_ == 0) std::this_thread::yield();
  }
  ~Sleeper() {
    is_done_ = true;
    Wake();
    thread_.join();
    close(event_);
  }

  uint32_t tid() const { return tid_; }
  pthread_t handle() { return thread_.native_handle(); }
  void Wake() const {
    const uint64_t one = 1;
    ASSERT_EQ(write(event_, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }

 private:
  void Run() {
    tid_ = static_cast<uint32_t>(gettid());
    while (!is_done_) {
      uint64_t count;
      if (read(event_, &count, sizeof(count)) < 0) return;
    }
  }

  const int event_ = eventfd(0, EFD_CLOEXEC);
  std::atomic<uint32_t> tid_ = 0;
  std::atomic<bool> is_done_ = false;
  std::thread thread_;
};

// A look at a thread as soon as it sleeps.
struct LookAsleep : stackd_quiet_look {
  LookAsleep(int task_fd, uint32_t tid) {
    while (stackd_quiet_begin(this, task_fd, tid) != 0) std::this_thread::yield();
  }
  LookAsleep(const LookAsleep&) = delete;
  LookAsleep& operator=(const LookAsleep&) = delete;
  ~LookAsleep() { stackd_quiet_end(this); }
};

class QuietReadTest : public testing::Test {
 protected:
  ~QuietReadTest() override { stackd_own_fd_drop(task_fd_); }

  const int task_fd_ = stackd_task_open();
};

stackd_syscall Call(uint32_t number, uint64_t operation = 0, uint64_t timeout = 0) {
  return {number, STACKD_SYSCALL_KNOWN, {0, operation, 0, timeout, 0, 0}};
}

TEST_F(QuietReadTest, ThreadThatSleepsOnIsWhole) {
  const Sleeper sleeper;
  const LookAsleep look(task_fd_, sleeper.tid());
  EXPECT_GE(look.schedstat_fd, 0);
  EXPECT_EQ(look.sleep.call.number, static_cast<uint32_t>(SYS_read));
  EXPECT_TRUE(stackd_quiet_is_whole(&look));
}

TEST_F(QuietReadTest, ThreadThatRanAndSleepsInTheSamePlaceIsTorn) {
  const Sleeper sleeper;
  const LookAsleep before(task_fd_, sleeper.tid());
  sleeper.Wake();
  std::optional<LookAsleep> after;
  while (!after || after->run_count == before.run_count) after.emplace(task_fd_, sleeper.tid());
  EXPECT_EQ(after->sleep.rsp, before.sleep.rsp);
  EXPECT_EQ(after->sleep.rip, before.sleep.rip);
  EXPECT_FALSE(stackd_quiet_is_whole(&before));
  EXPECT_TRUE(stackd_quiet_is_whole(&*after));
}

TEST_F(QuietReadTest, ThreadThatRunsIsNotAsleep) {
  std::atomic<uint32_t> tid = 0;
  std::atomic<bool> is_done = false;
  std::thread runner([&] {
    tid = static_cast<uint32_t>(gettid());
    while (!is_done) continue;
  });
  while (tid == 0) std::this_thread::yield();
  stackd_quiet_look look;
  EXPECT_EQ(stackd_quiet_begin(&look, task_fd_, tid), -EAGAIN);
  is_done = true;
  runner.join();
}

TEST_F(QuietReadTest, ThreadThatIsGoneIsSaidToBe) {
  uint32_t tid = 0;
  std::thread([&] { tid = static_cast<uint32_t>(gettid()); }).join();
  stackd_quiet_look look;
  EXPECT_LT(stackd_quiet_begin(&look, task_fd_, tid), 0);
}

TEST_F(QuietReadTest, DescriptorOfAThreadIsThatOfTheCLibrary) {
  Sleeper sleeper;
  EXPECT_EQ(stackd_quiet_thread_self(sleeper.tid()), static_cast<uint64_t>(sleeper.handle()));
  EXPECT_EQ(stackd_quiet_thread_self(static_cast<uint32_t>(gettid())), static_cast<uint64_t>(pthread_self()));
  EXPECT_EQ(stackd_quiet_thread_self(1u << 30), 0u);
}

TEST(QuietRead, OnlyWhatIsSureToBeRestartedIs) {
  const auto is_restarted = [](stackd_syscall call) { return stackd_call_is_restarted(&call); };
  EXPECT_TRUE(is_restarted(Call(SYS_futex, FUTEX_WAIT | FUTEX_PRIVATE_FLAG)));
  EXPECT_TRUE(is_restarted(Call(SYS_futex, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME)));
  EXPECT_FALSE(is_restarted(Call(SYS_futex, FUTEX_WAIT, 0x1000)));
  EXPECT_FALSE(is_restarted(Call(SYS_futex, FUTEX_WAIT_REQUEUE_PI)));
  EXPECT_TRUE(is_restarted(Call(SYS_wait4)));
  EXPECT_FALSE(is_restarted(Call(SYS_poll)));
  EXPECT_FALSE(is_restarted(Call(SYS_read)));
  EXPECT_FALSE(is_restarted(Call(SYS_nanosleep)));
}

}  // namespace
