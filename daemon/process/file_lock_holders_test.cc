// The locks here are real, of this test and of its children.
#include "daemon/process/file_lock_holders.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/fd.h"
#include "daemon/process/file_lock_procfs.h"

namespace stackd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kLongNs = 20 * kNsPerSecond;
constexpr FileLockKind kFlock = FileLockKind::kFlock, kRecord = FileLockKind::kRecord;

class LockFile {
 public:
  LockFile() { close(mkstemp(path_.data())); }
  ~LockFile() { unlink(path_.c_str()); }
  // Another open file each time.
  Fd Open() const { return Fd(open(path_.c_str(), O_RDWR | O_CLOEXEC)); }

 private:
  std::string path_ = "/tmp/file_lock_holders-XXXXXX";
};

// A child that has run `body`, and then stays until this is gone.
class Child {
 public:
  explicit Child(const std::function<void()>& body) {
    int ready[2];
    EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      body();
      EXPECT_EQ(write(ready[1], "", 1), 1);
      for (;;) pause();
    }
    char byte;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
  }
  ~Child() { End(); }
  void End() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  int32_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

void TakeRecord(int fd) {
  struct flock whole{};
  whole.l_type = F_WRLCK;
  EXPECT_EQ(fcntl(fd, F_SETLKW, &whole), 0);
}

void TakeFlock(int fd) { EXPECT_EQ(flock(fd, LOCK_EX), 0); }

class FileLockHoldersTest : public testing::Test {
 protected:
  FileLockHoldersTest() {
    Fd folder(open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    EXPECT_TRUE(files_.SetFolder(&folder));
  }
  // Behind the children of the test, which let the waiters go.
  ~FileLockHoldersTest() override {
    for (std::thread& waiter : waiters_) waiter.join();
  }

  // An open file for waiters, which they find open until they have what they wait for.
  int Keep(Fd fd) { return kept_.emplace_back(std::move(fd)).get(); }

  void Wait(int fd, void (*take)(int) = TakeFlock) {
    waiters_.emplace_back([=] { take(fd); });
  }

  // When the kernel says that all of them wait.
  std::vector<FileLock> Find(const std::vector<FileLockWait>& waits) {
    for (const int64_t deadline_ns = MonotonicNs() + kLongNs; MonotonicNs() < deadline_ns; usleep(1000)) {
      auto locks = FindFileLockHolders(files_, getpid(), waits, deadline_ns);
      if (locks.size() == waits.size()) return locks;
    }
    return {};
  }

  ProcessFiles files_;
  std::vector<Fd> kept_;
  std::vector<std::thread> waiters_;
};

TEST_F(FileLockHoldersTest, AnotherProcessIsFoundByItsOpenFile) {
  const LockFile file;
  const int fd = Keep(file.Open());
  Fd held;
  const Child child([&] { TakeFlock((held = file.Open()).get()); });
  Wait(fd);
  const auto locks = Find({{fd, kFlock}});
  EXPECT_THAT(
      locks,
      ElementsAre(FileLock{
          .fd = fd, .holder = {child.pid(), NameOfProcess(getpid())}, .still_holds = StillHolds::kYes, .cycle = {}}));
  EXPECT_FALSE(NameOfProcess(child.pid()).empty());
}

TEST_F(FileLockHoldersTest, RecordsAreOfTheirProcess) {
  const LockFile file;
  const int fd = Keep(file.Open());
  Fd held;
  const Child child([&] { TakeRecord((held = file.Open()).get()); });
  Wait(fd, TakeRecord);
  const auto locks = Find({{fd, kRecord}});
  ASSERT_THAT(locks, SizeIs(1));
  EXPECT_EQ(locks[0].holder.pid, child.pid());
  EXPECT_EQ(locks[0].held_as, kRecord);
  EXPECT_EQ(locks[0].still_holds, StillHolds::kYes);
  EXPECT_THAT(FindFileLockHolders(files_, getpid(), {{fd, kFlock}}, MonotonicNs() + kLongNs), IsEmpty())
      << "no thread waits for that";
}

TEST_F(FileLockHoldersTest, ThisProcessIsItsOwnHolder) {
  const LockFile file;
  const int fd = Keep(file.Open());
  const Fd held = file.Open();
  TakeFlock(held.get());
  Wait(fd);
  const auto locks = Find({{fd, kFlock}});
  flock(held.get(), LOCK_UN);
  ASSERT_THAT(locks, SizeIs(1));
  EXPECT_TRUE(locks[0].is_own);
  EXPECT_EQ(locks[0].still_holds, StillHolds::kYes);
}

// Another namespace shows no lock of a process that it does not know.
bool IsInFirstPidNamespace() {
  char target[64] = {};
  return readlink("/proc/self/ns/pid", target, sizeof(target) - 1) > 0 && std::string(target) == "pid:[4026531836]";
}

TEST_F(FileLockHoldersTest, ProcessThatHasEndedHoldsNothing) {
  if (!IsInFirstPidNamespace()) GTEST_SKIP() << "this is not the first PID namespace";
  const LockFile file;
  const int fd = Keep(file.Open());
  const Fd shared = file.Open();
  Child locker([&] { TakeFlock(shared.get()); });
  const int32_t locker_pid = locker.pid();
  locker.End();
  Wait(fd);
  const auto locks = Find({{fd, kFlock}});
  flock(shared.get(), LOCK_UN);
  ASSERT_THAT(locks, SizeIs(1));
  EXPECT_EQ(locks[0].holder.pid, locker_pid);
  EXPECT_EQ(locks[0].still_holds, StillHolds::kNo);
}

TEST_F(FileLockHoldersTest, ProcessThatHasClosedItsOpenFileHoldsNothing) {
  const LockFile file;
  const int fd = Keep(file.Open());
  Fd shared = file.Open();
  const Child locker([&] {
    TakeFlock(shared.get());
    shared.Reset();
  });
  Wait(fd);
  const auto locks = Find({{fd, kFlock}});
  flock(shared.get(), LOCK_UN);
  ASSERT_THAT(locks, SizeIs(1));
  EXPECT_EQ(locks[0].holder.pid, locker.pid());
  EXPECT_EQ(locks[0].still_holds, StillHolds::kNo);
}

TEST_F(FileLockHoldersTest, EachFileHasItsHolder) {
  const LockFile files[2];
  const int fds[] = {Keep(files[0].Open()), Keep(files[1].Open())};
  Fd held;
  const Child first([&] { TakeFlock((held = files[0].Open()).get()); });
  const Child second([&] { TakeFlock((held = files[1].Open()).get()); });
  for (const int fd : fds) Wait(fd);
  const auto locks = Find({{fds[0], kFlock}, {fds[1], kFlock}});
  ASSERT_THAT(locks, SizeIs(2));
  EXPECT_EQ(locks[0].holder.pid, first.pid());
  EXPECT_EQ(locks[1].holder.pid, second.pid());
  const Fd other(open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_THAT(FindFileLockHolders(files_, getpid(), {{other.get(), kFlock}}, MonotonicNs() + kLongNs), IsEmpty());
}

TEST_F(FileLockHoldersTest, ReadersAreCounted) {
  const LockFile file;
  const int fd = Keep(file.Open());
  Fd held;
  const auto read = [&] { EXPECT_EQ(flock((held = file.Open()).get(), LOCK_SH), 0); };
  const Child first(read), second(read), third(read);
  Wait(fd);
  const auto locks = Find({{fd, kFlock}});
  ASSERT_THAT(locks, SizeIs(1));
  EXPECT_TRUE(locks[0].is_read_lock);
  EXPECT_EQ(locks[0].more_readers, 2u);
}

TEST_F(FileLockHoldersTest, ProcessesThatWaitForEachOtherAreACycle) {
  const LockFile mine, its;
  const int fd = Keep(its.Open());
  const Fd held = mine.Open();
  TakeFlock(held.get());
  Fd child_held, child_waits;
  const Child child([&] {
    TakeFlock((child_held = its.Open()).get());
    child_waits = mine.Open();
    std::thread([&] { TakeFlock(child_waits.get()); }).detach();
  });
  Wait(fd);
  std::vector<FileLock> locks;
  for (const int64_t deadline_ns = MonotonicNs() + kLongNs; MonotonicNs() < deadline_ns; usleep(1000)) {
    locks = Find({{fd, kFlock}});
    if (locks.empty() || !locks[0].cycle.empty()) break;
  }
  ASSERT_THAT(locks, SizeIs(1));
  EXPECT_THAT(locks[0].cycle, ElementsAre(LockingProcess{child.pid(), NameOfProcess(getpid())}));
}

TEST_F(FileLockHoldersTest, ProcessThatWorksRuns) {
  const LockFile file;
  const int fd = Keep(file.Open());
  Fd held;
  const Child child([&] {
    TakeFlock((held = file.Open()).get());
    std::thread([] {
      for (;;) getppid();
    }).detach();
  });
  Wait(fd);
  ASSERT_THAT(Find({{fd, kFlock}}), SizeIs(1));
  bool runs = false;
  for (const int64_t deadline_ns = MonotonicNs() + kLongNs; !runs && MonotonicNs() < deadline_ns; usleep(1000)) {
    runs = HasRunningThread(child.pid());
  }
  EXPECT_TRUE(runs);
}

TEST_F(FileLockHoldersTest, NoPidGivesNoAnswer) {
  EXPECT_THAT(FindFileLockHolders(files_, 0, {{0, kFlock}}, MonotonicNs() + kLongNs), IsEmpty());
  EXPECT_THAT(FindFileLockHolders(files_, getpid(), {{0, kFlock}}, MonotonicNs() - 1), IsEmpty());
  EXPECT_EQ(NameOfProcess(0x7ffffff0), "");
  EXPECT_FALSE(HasRunningThread(0x7ffffff0));
}

}  // namespace
}  // namespace stackd
