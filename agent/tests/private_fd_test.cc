extern "C" {
#include "agent/sys/private_fd.h"

#include "agent/sys/process_id.h"
}

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

namespace stackd {
namespace {

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

// What the program may have at a number that it closed twice: the second time it was the helper's.
class PrivateFdTest : public testing::Test {
 protected:
  void SetUp() override {
    stackd_keep_pid();
    ASSERT_EQ(0, pipe(pipe_.data()));
    ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sockets_.data()));
  }
  void TearDown() override {
    for (int fd : pipe_) close(fd);
    for (int fd : sockets_) close(fd);
  }

  std::array<int, 2> pipe_;
  std::array<int, 2> sockets_;
};

TEST_F(PrivateFdTest, AFileOfTheProgramIsNotHeldOrClosed) {
  const int fd = pipe_[0];
  for (auto kind : {STACKD_FD_PROC, STACKD_FD_SOCKET, STACKD_FD_FILE}) {
    EXPECT_EQ(-EBADF, stackd_own_fd_hold(fd, kind));
    EXPECT_FALSE(stackd_own_fd_guards(fd));
    EXPECT_LT(stackd_own_fd_take(fd, kind).fd, 0);
    EXPECT_FALSE(stackd_own_fd_guards(fd));
    EXPECT_TRUE(IsOpen(fd));
  }
  stackd_own_fd_reset_after_fork();
  EXPECT_TRUE(IsOpen(fd));
  EXPECT_EQ(-EBADF, stackd_own_fd_hold(sockets_[0], STACKD_FD_PROC));
}

TEST_F(PrivateFdTest, ANumberThatTheProgramHasClosedIsNotHeld) {
  const int fd = open("/proc/self/maps", O_RDONLY);
  close(fd);
  EXPECT_EQ(-EBADF, stackd_own_fd_hold(fd, STACKD_FD_PROC));
  EXPECT_FALSE(stackd_own_fd_guards(fd));
}

TEST_F(PrivateFdTest, WhatIsHeldIsGuardedUntilItIsDropped) {
  const int fd = open("/proc/self/task", O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(fd, stackd_own_fd_hold(fd, STACKD_FD_PROC));
  EXPECT_TRUE(stackd_own_fd_guards(fd));
  stackd_own_fd_drop(fd);
  EXPECT_FALSE(stackd_own_fd_guards(fd));
  EXPECT_FALSE(IsOpen(fd));
}

TEST_F(PrivateFdTest, WhatIsTakenLeavesItsNumber) {
  const int fd = dup(sockets_[0]);
  stackd_own_fd own = stackd_own_fd_take(fd, STACKD_FD_SOCKET);
  EXPECT_GE(own.fd, 200);
  EXPECT_TRUE(stackd_own_fd_guards(own.fd));
  EXPECT_FALSE(stackd_own_fd_guards(fd));
  EXPECT_FALSE(IsOpen(fd));
  stackd_own_fd_close(&own);
}

}  // namespace
}  // namespace stackd
