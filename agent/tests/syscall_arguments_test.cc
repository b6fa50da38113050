extern "C" {
#include "agent/capture/syscall_arguments.h"
}

#include <gtest/gtest.h>

#include <array>

namespace stackd {
namespace {

constexpr uint64_t kSecret = 0x5ec2e75ec2e75ec2;

std::array<uint64_t, 6> AllSecret() { return {kSecret, kSecret, kSecret, kSecret, kSecret, kSecret}; }

stackd_syscall Keep(uint32_t number, std::array<uint64_t, 6> arguments) {
  stackd_syscall call;
  stackd_syscall_keep(number, arguments.data(), &call);
  return call;
}

uint32_t KnownArguments(const stackd_syscall& call) { return call.known & ~STACKD_SYSCALL_KNOWN; }

TEST(SyscallArgumentsTest, WhatIsNotSaidToBeKnownIsZeroInEveryCall) {
  for (uint32_t number = 0; number < STACKD_SYSCALL_NUMBERS; number++) {
    auto call = Keep(number, AllSecret());
    EXPECT_EQ(call.number, number);
    EXPECT_NE(call.known & STACKD_SYSCALL_KNOWN, 0u);
    for (int i = 0; i < STACKD_SYSCALL_ARGUMENTS; i++) {
      EXPECT_EQ(call.arguments[i] != 0, (call.known >> i & 1) != 0) << number << " " << i;
    }
  }
}

TEST(SyscallArgumentsTest, BuffersAndLengthsOfDataStay) {
  for (uint32_t number : {SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_connect}) {
    EXPECT_EQ(KnownArguments(Keep(number, AllSecret())), 1u) << number;
  }
  EXPECT_EQ(KnownArguments(Keep(SYS_recvfrom, AllSecret())), 1u | 8u);
  EXPECT_EQ(KnownArguments(Keep(SYS_sendto, AllSecret())), 1u | 8u);
  EXPECT_EQ(KnownArguments(Keep(SYS_msgrcv, AllSecret())), 1u | 16u);
  EXPECT_EQ(KnownArguments(Keep(SYS_mq_timedsend, AllSecret())), 1u | 16u);
}

TEST(SyscallArgumentsTest, OfCallsThatWaitForNothingNamedOnlyTheNumberLeaves) {
  for (uint32_t number :
       {SYS_open, SYS_openat, SYS_mmap, SYS_munmap, SYS_madvise, SYS_mprotect, SYS_brk, SYS_msync, SYS_pause,
        SYS_rt_sigsuspend, SYS_execve, SYS_getrandom, SYS_restart_syscall, 511, 512, 1023, 4000}) {
    EXPECT_EQ(KnownArguments(Keep(number, AllSecret())), 0u) << number;
  }
}

TEST(SyscallArgumentsTest, NoMoreOfAnIntLeavesThanTheKernelLooksAt) {
  EXPECT_EQ(Keep(SYS_read, {0xdeadbeef00000007, 0, 0, 0, 0, 0}).arguments[0], 7u);
  EXPECT_EQ(Keep(SYS_wait4, {0xffffffff, 0, 0, 0, 0, 0}).arguments[0], static_cast<uint64_t>(-1));
}

TEST(SyscallArgumentsTest, AFutexKeepsWhatItsOperationUses) {
  struct Case {
    uint32_t operation;
    uint32_t known;
  };
  constexpr uint32_t kWordAndOperation = 1 | 2;
  for (Case c :
       {Case{FUTEX_WAIT, kWordAndOperation | 8}, Case{FUTEX_WAIT_BITSET, kWordAndOperation | 8 | 32},
        Case{FUTEX_LOCK_PI, kWordAndOperation | 8}, Case{FUTEX_LOCK_PI2, kWordAndOperation | 8},
        Case{FUTEX_WAIT_REQUEUE_PI, kWordAndOperation | 8}, Case{FUTEX_WAKE, kWordAndOperation},
        Case{FUTEX_WAKE_BITSET, kWordAndOperation | 32}, Case{FUTEX_CMP_REQUEUE, kWordAndOperation},
        Case{FUTEX_WAKE_OP, kWordAndOperation}, Case{FUTEX_UNLOCK_PI, kWordAndOperation}, Case{99, kWordAndOperation}}) {
    for (uint32_t flags : {0u, uint32_t{FUTEX_PRIVATE_FLAG}, uint32_t{FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME}}) {
      auto call = Keep(SYS_futex, {kSecret, c.operation | flags, kSecret, kSecret, kSecret, kSecret});
      EXPECT_EQ(KnownArguments(call), c.known) << c.operation;
      EXPECT_EQ(call.arguments[0], kSecret);
      EXPECT_EQ(call.arguments[1], c.operation | flags);
    }
  }
}

TEST(SyscallArgumentsTest, PollKeepsTheWholeAddressOfItsArray) {
  auto call = Keep(SYS_poll, {0x7ffd12345678, 3, static_cast<uint32_t>(-1), kSecret, kSecret, kSecret});
  EXPECT_EQ(KnownArguments(call), 1u | 2u | 4u);
  EXPECT_EQ(call.arguments[0], 0x7ffd12345678u);
  EXPECT_EQ(call.arguments[1], 3u);
  EXPECT_EQ(static_cast<int64_t>(call.arguments[2]), -1);
}

}  // namespace
}  // namespace stackd
