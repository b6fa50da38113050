#include "daemon/analyze/waits/wait_end.h"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#include <initializer_list>
#include <string>
#include <vector>

namespace stackd {
namespace {

SystemCall Call(uint32_t number, std::initializer_list<uint64_t> arguments) {
  SystemCall call{.number = number};
  for (uint64_t argument : arguments) {
    call.arguments[__builtin_popcount(call.known_arguments)] = argument;
    call.known_arguments = call.known_arguments << 1 | 1;
  }
  return call;
}

WaitEnd EndOfReading(std::string name, int32_t other_end = -1) {
  const std::vector<WaitedFd> fds = {{.fd = 5, .name = std::move(name), .other_end = other_end}};
  const WaitEnd end = WaitEndOf(Call(SYS_read, {5}), fds);
  EXPECT_EQ(WaitEndOf(Call(SYS_recvfrom, {5}), fds), end);
  return end;
}

TEST(WaitEnd, OfWhatBringsWorkIsOutside) {
  for (const char* name : {"udp 0.0.0.0:5353", "udp", "netlink", "packet", "inet 10.0.0.1:1", "unix /run/notify",
                           "unix @abstract", "anon_inode:inotify", "anon_inode:[fanotify]", "anon_inode:[timerfd]",
                           "anon_inode:[signalfd]", "/dev/pts/3", "/dev/input/event0", "pipe:[17]", ""}) {
    EXPECT_EQ(EndOfReading(name), WaitEnd::kOutside) << name;
  }
  for (uint32_t number : {SYS_accept, SYS_epoll_wait, SYS_poll, SYS_select, SYS_io_uring_enter, SYS_rt_sigtimedwait,
                          SYS_pause, SYS_mq_timedreceive, SYS_msgrcv, SYS_read}) {
    EXPECT_EQ(WaitEndOf(Call(number, {}), {}), WaitEnd::kOutside) << number;
  }
}

TEST(WaitEnd, OfAnAnswerIsOwed) {
  for (const char* name : {"tcp 10.0.0.1:1 -> 10.0.0.2:2", "udp 10.0.0.1:1 -> 10.0.0.2:53", "unix -> /run/db", "unix",
                           "tcp 10.0.0.1:1", "/mnt/nfs/file"}) {
    EXPECT_EQ(EndOfReading(name), WaitEnd::kOwed) << name;
  }
  const std::vector<WaitedFd> pipe = {{.fd = 5, .name = "pipe:[17]"}};
  EXPECT_EQ(WaitEndOf(Call(SYS_write, {5}), pipe), WaitEnd::kOwed);
  for (uint32_t number : {SYS_connect, SYS_wait4, SYS_flock, SYS_mq_timedsend, SYS_semop, SYS_openat}) {
    EXPECT_EQ(WaitEndOf(Call(number, {5}), {}), WaitEnd::kOwed) << number;
  }
}

TEST(WaitEnd, OfWhatAThreadOfTheProcessDoesIsInside) {
  EXPECT_EQ(EndOfReading("pipe:[17]", /*other_end=*/6), WaitEnd::kInside);
  EXPECT_EQ(EndOfReading("anon_inode:[eventfd]"), WaitEnd::kInside);
  EXPECT_EQ(WaitEndOf(Call(SYS_futex, {0x1000, FUTEX_WAIT_PRIVATE, 0, 0}), {}), WaitEnd::kInside);
}

TEST(WaitEnd, OfTimeIsTime) {
  EXPECT_EQ(WaitEndOf(Call(SYS_clock_nanosleep, {}), {}), WaitEnd::kTime);
  EXPECT_EQ(WaitEndOf(Call(SYS_futex, {0x1000, FUTEX_WAIT_PRIVATE, 0, 0x2000}), {}), WaitEnd::kTime);
  EXPECT_EQ(WaitEndOf(Call(SYS_mq_timedsend, {3, 0x1000, 8, 0, 0x2000}), {}), WaitEnd::kTime);
}

TEST(WaitEnd, OfStandardInputIsOutsideWhateverItIs) {
  const std::vector<WaitedFd> fds = {{.fd = 0, .name = "pipe:[17]", .other_end = 9}};
  EXPECT_EQ(WaitEndOf(Call(SYS_read, {0}), fds), WaitEnd::kOutside);
}

}  // namespace
}  // namespace stackd
