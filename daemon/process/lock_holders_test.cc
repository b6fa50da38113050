#include "daemon/process/lock_holders.h"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/syscall.h>

namespace stackd {
namespace {

constexpr uint64_t kLockAvma = 0x5000;
constexpr int32_t kWaiter = 101, kOther = 102, kHolder = 103;

// Two wait for what a third has, which was captured outside of any system call.
class LockHolders : public testing::Test {
 protected:
  LockHolders() {
    for (int32_t tid : {kWaiter, kOther, kHolder}) {
      ThreadCapture& thread = capture_.threads.emplace_back();
      thread.tid = tid;
      thread.status = ThreadStatus::kCaptured;
      thread.has_stack = true;
      if (tid != kHolder) {
        thread.call = SystemCall{.number = SYS_futex, .known_arguments = 3, .arguments = {kLockAvma, FUTEX_WAIT_PRIVATE}};
      }
    }
    holder().registers.value[Registers::kRip] = 0x1000;
    holder().registers.value[Registers::kRsp] = 0x2000;
    capture_.futexes.push_back({.avma = kLockAvma, .value = 2, .mutex = PthreadMutex{.owner_tid = kHolder, .users = 1}});
  }

  ThreadCapture& holder() { return capture_.threads[2]; }
  FutexWord& word() { return capture_.futexes[0]; }

  char StateAfter(const ThreadWait& wait) {
    MarkHoldersAsleep({&wait, 1}, &capture_);
    return holder().kernel_state;
  }

  Capture capture_;
};

TEST_F(LockHolders, OneOfALockThatProcessesShareIsNotJudged) {
  word().is_shared = true;
  EXPECT_FALSE(HasHolderOutsideCalls(capture_));
}

TEST_F(LockHolders, OneThatIsSeenAsleepWhereItWasCapturedIsAsleep) {
  EXPECT_TRUE(HasHolderOutsideCalls(capture_));
  EXPECT_EQ(StateAfter({.tid = kHolder, .rsp_avma = 0x2000, .rip_avma = 0x1000}), 'S');
}

TEST_F(LockHolders, AWaiterWhoseWordWasNotToldIsNotSaidToWaitThere) {
  ForgetUntold(&capture_);
  EXPECT_TRUE(capture_.threads[0].call->knows(0));
  capture_.futexes.clear();
  ForgetUntold(&capture_);
  EXPECT_FALSE(capture_.threads[0].call->knows(0));
}

TEST_F(LockHolders, OneThatIsElsewhereOrInACallIsNot) {
  EXPECT_EQ(StateAfter({.tid = kHolder, .rsp_avma = 0x2000, .rip_avma = 0x1004}), 0);
  EXPECT_EQ(StateAfter({.tid = kHolder, .rsp_avma = 0x2000, .rip_avma = 0x1000, .call = SystemCall{.number = SYS_read}}),
            0);
  holder().call = SystemCall{.number = SYS_read};
  EXPECT_FALSE(HasHolderOutsideCalls(capture_));
}

}  // namespace
}  // namespace stackd
