// The lock here is real, of a child.
#include "daemon/process/flock_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <optional>
#include <string>

#include "daemon/base/clock.h"
#include "daemon/confine/landlock.h"
#include "daemon/process/file_lock_procfs.h"

namespace stackd {
namespace {

// A child that has the lock of a file until this is gone.
class Locker {
 public:
  Locker() {
    const Fd file(mkostemp(path_.data(), O_CLOEXEC));
    int ready[2];
    EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const Fd own(open(path_.c_str(), O_RDWR | O_CLOEXEC));
      if (flock(own.get(), LOCK_EX) != 0 || write(ready[1], "", 1) != 1) _exit(1);
      for (;;) pause();
    }
    char byte;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
  }
  ~Locker() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    unlink(path_.c_str());
  }

  std::optional<FileLockLine> Line() const {
    for (const HeldFileLock& lock : ReadFileLocks()) {
      if (lock.holder.pid == pid_) return lock.holder;
    }
    return std::nullopt;
  }

 private:
  std::string path_ = "/tmp/flock_process-XXXXXX";
  pid_t pid_ = -1;
};

constexpr int64_t kLongNs = 20 * kNsPerSecond;

int64_t Later() { return MonotonicNs() + kLongNs; }

TEST(FlockProcess, SeesLocksThatAConfinedProcessDoesNot) {
  if (LandlockVersion() == 0) GTEST_SKIP() << "the kernel has no Landlock";
  const Locker locker;
  const auto line = locker.Line();
  ASSERT_TRUE(line);
  ASSERT_EQ(HasFlock(*line, Later()), StillHolds::kYes);
  FileLockLine another = *line;
  another.file.inode++;
  // Landlock stays with a process for good.
  const pid_t child = fork();
  if (child == 0) {
    const auto asked = FlockProcess::Start();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || !RestrictByLandlock({.reads = true})) _exit(1);
    if (HasFlock(*line, Later()) != StillHolds::kNotKnown) _exit(2);
    if (asked->HasFlock(*line, Later()) != StillHolds::kYes) _exit(3);
    if (asked->HasFlock(another, Later()) != StillHolds::kNo) _exit(4);
    if (asked->HasFlock(*line, MonotonicNs()) != StillHolds::kNotKnown) _exit(5);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(FlockProcess, EndsWithItsOwner) {
  auto asked = FlockProcess::Start();
  ASSERT_NE(asked, nullptr);
  asked.reset();
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

}  // namespace
}  // namespace stackd
