#include "daemon/managed/cpython/find_rlock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

uint64_t Address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// As CPython has them, in this process. This test's thread has the lock.
struct Type {
  std::array<uint64_t, 3> object = {};
  const char* name = "_thread.RLock";
};
struct RLock {
  uint64_t references = 1, type, lock, owner = Address(reinterpret_cast<void*>(pthread_self()));
};

class FindRLock : public testing::Test {
 protected:
  void SetUp() override {
    Fd memory(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(files_.SetMemory(&memory));
    lock_ = {.type = Address(&type_), .lock = Address(&semaphore_)};
    stack_[40] = Address(&lock_);
  }

  std::vector<ManagedWait> Find(const void* futex, uint64_t timeout = 0) {
    SystemCall call{.number = SYS_futex, .known_arguments = 0b1111};
    call.arguments = {Address(futex), FUTEX_WAIT_BITSET_PRIVATE, 0, timeout, 0, 0};
    const ThreadWait waiter{.tid = 7, .rsp_avma = Address(stack_.data()), .call = call};
    return FindRLockWaits(std::array{waiter}, files_, MonotonicNs() + kNsPerSecond);
  }

  ProcessFiles files_;
  Type type_;
  RLock lock_ = {};
  uint64_t semaphore_ = 0;
  std::array<uint64_t, 512> stack_ = {};
};

TEST_F(FindRLock, AThreadThatSleepsOnItsSemaphoreWaitsForTheThreadThatHasIt) {
  const auto waits = Find(&semaphore_);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].waiter_tid, 7);
  EXPECT_EQ(waits[0].owner_tid, gettid());
  EXPECT_EQ(waits[0].lock_avma, Address(&lock_));
  EXPECT_EQ(waits[0].lock, "threading.RLock");
}

// What a thread sleeps on from 3.14 on, on its own stack: what it waits for lies before.
TEST_F(FindRLock, AThreadThatIsParkedForItWaitsForTheThreadThatHasIt) {
  stack_[40] = 0;
  stack_[100] = Address(&lock_.lock);
  const auto waits = Find(&stack_[101]);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].owner_tid, gettid());
  EXPECT_EQ(waits[0].lock_avma, Address(&lock_));
}

TEST_F(FindRLock, WhoGivesUpAfterATimeAndWhatNobodyHasHaveNoOwner) {
  ASSERT_EQ(Find(&semaphore_, Address(&semaphore_)).size(), 1u);
  EXPECT_EQ(Find(&semaphore_, Address(&semaphore_))[0].owner_tid, 0);
  lock_.owner = 0;
  EXPECT_EQ(Find(&semaphore_)[0].owner_tid, 0);
  lock_.owner = Address(stack_.data());
  EXPECT_EQ(Find(&semaphore_)[0].owner_tid, 0) << "no thread";
}

TEST_F(FindRLock, AnotherLockAndOneOfAnotherTypeAreNone) {
  const uint64_t other = 0;
  EXPECT_TRUE(Find(&other).empty());
  for (const char* name : {"_thread.lock", "_thread.RLocked", "_thread.RLoc"}) {
    type_.name = name;
    EXPECT_TRUE(Find(&semaphore_).empty()) << name;
  }
}

}  // namespace
}  // namespace stackd
