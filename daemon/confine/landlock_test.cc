#include "daemon/confine/landlock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace stackd {
namespace {

// The errno that `attempt` has in a child, 0 if it succeeds; before and after the child has forbidden itself paths.
int ErrnoIn(bool forbidden, const std::function<long()>& attempt, const LandlockRules& rules = {}) {
  const pid_t child = fork();
  if (child == 0) {
    if (forbidden && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || !RestrictByLandlock(rules))) _exit(255);
    _exit(attempt() < 0 ? errno : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

long ConnectTo(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const long result = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  // ECONNREFUSED, since no socket listens there, shows that the connect was allowed.
  return result < 0 && errno == ECONNREFUSED ? 0 : result;
}

class LandlockTest : public testing::Test {
 protected:
  void SetUp() override {
    if (LandlockVersion() == 0) GTEST_SKIP() << "the kernel has no Landlock";
  }
};

TEST_F(LandlockTest, ForbidsFilesByAnyPath) {
  const int folder = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::function<long()> attempts[] = {
      [] { return open("/etc/passwd", O_RDONLY | O_CLOEXEC); },
      [&] { return openat(folder, "passwd", O_RDONLY | O_CLOEXEC); },
      [] { return open("/dev/shm/stackd-landlock", O_RDWR | O_CREAT | O_CLOEXEC, 0600); },
      [] { return unlink("/dev/shm/stackd-landlock"); },
  };
  for (const auto& attempt : attempts) EXPECT_EQ(ErrnoIn(false, attempt), 0);
  EXPECT_EQ(ErrnoIn(false, attempts[2]), 0);
  for (const auto& attempt : attempts) EXPECT_EQ(ErrnoIn(true, attempt), EACCES);
  unlink("/dev/shm/stackd-landlock");
  close(folder);
}

TEST_F(LandlockTest, LeavesOpenFilesOpen) {
  const int file = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(ErrnoIn(true,
                    [file] {
                      char byte;
                      return pread(file, &byte, 1, 0);
                    }),
            0);
  close(file);
}

TEST_F(LandlockTest, ForbidsConnectionsWhereTheKernelCan) {
  if (LandlockVersion() < 4) GTEST_SKIP() << "the kernel's Landlock does not know TCP";
  const auto attempt = [] { return ConnectTo(9); };
  EXPECT_EQ(ErrnoIn(false, attempt), 0);
  EXPECT_EQ(ErrnoIn(true, attempt), EACCES);
}

TEST_F(LandlockTest, ForbidsSignalsToOthersWhereTheKernelCan) {
  if (LandlockVersion() < 6) GTEST_SKIP() << "the kernel's Landlock does not know signals";
  const auto attempt = [parent = getpid()] { return kill(parent, 0); };
  EXPECT_EQ(ErrnoIn(false, attempt), 0);
  EXPECT_EQ(ErrnoIn(true, attempt), EPERM);
}

TEST_F(LandlockTest, KeepsWhatItIsToldTo) {
  const auto keeps = [](const LandlockRules& rules, const std::function<long()>& attempt) {
    return ErrnoIn(true, attempt, rules);
  };
  const auto read = [] { return open("/etc/passwd", O_RDONLY | O_CLOEXEC); };
  const auto write = [] { return open("/dev/shm", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600); };
  const auto connect = [] { return ConnectTo(9); };
  EXPECT_EQ(keeps({.reads = true}, read), 0);
  EXPECT_EQ(keeps({.reads = true}, write), EACCES);
  EXPECT_EQ(keeps({.written = {"/dev/shm", "/not/there"}}, write), 0);
  EXPECT_EQ(keeps({.written = {"/dev/shm"}}, read), EACCES);
  EXPECT_EQ(keeps({.connects = true}, connect), 0);
  EXPECT_EQ(keeps({.connects = true}, read), EACCES);
}

}  // namespace
}  // namespace stackd
