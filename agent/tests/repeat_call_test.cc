extern "C" {
#include "agent/signals/repeat_call.h"
}

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <ucontext.h>

#include <array>

namespace stackd {
namespace {

// The end of a call of the C library's: mov $number,%eax; syscall.
class RepeatCallTest : public testing::Test {
 protected:
  void SetUp() override { stackd_repeat_prepare(STACKD_REPEAT_ANEW_S); }

  void SetNumber(uint32_t number) {
    code_[7] = static_cast<uint8_t>(number);
    code_[8] = static_cast<uint8_t>(number >> 8);
  }

  // A thread in call `number` with these arguments, which a signal has just ended.
  void Interrupt(uint32_t number, std::array<uint64_t, 6> arguments) {
    SetNumber(number);
    auto& registers = context_.uc_mcontext.gregs;
    registers[REG_RIP] = reinterpret_cast<greg_t>(code_.data() + code_.size());
    registers[REG_RAX] = -EINTR;
    constexpr std::array<int, 6> kRegisters = {REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9};
    for (size_t i = 0; i < 6; i++) registers[kRegisters[i]] = static_cast<greg_t>(arguments[i]);
  }

  bool IsRepeated() {
    const greg_t rip = context_.uc_mcontext.gregs[REG_RIP];
    stackd_repeat_call(&context_);
    const auto& registers = context_.uc_mcontext.gregs;
    if (registers[REG_RIP] == rip) {
      EXPECT_EQ(-EINTR, registers[REG_RAX]);
      return false;
    }
    EXPECT_EQ(rip - 2, registers[REG_RIP]);
    EXPECT_EQ(code_[7] | code_[8] << 8, registers[REG_RAX]);
    return true;
  }

  bool IsRepeated(uint32_t number, std::array<uint64_t, 6> arguments) {
    Interrupt(number, arguments);
    return IsRepeated();
  }

  ucontext_t context_{};
  std::array<uint8_t, 13> code_ = {0, 0, 0, 0, 0, 0, 0xb8, 0, 0, 0, 0, 0x0f, 0x05};
};

uint64_t AddressOf(const void* what) { return reinterpret_cast<uint64_t>(what); }

TEST_F(RepeatCallTest, TimeoutsUpToAMinuteBeginAgain) {
  EXPECT_TRUE(IsRepeated(SYS_poll, {0, 0, 60'000}));
  EXPECT_FALSE(IsRepeated(SYS_poll, {0, 0, 61'000}));
  EXPECT_TRUE(IsRepeated(SYS_poll, {0, 0, 0xffff'ffff}));
  timespec minute = {60, 0};
  timespec longer = {61, 0};
  EXPECT_TRUE(IsRepeated(SYS_semtimedop, {0, 0, 0, AddressOf(&minute)}));
  EXPECT_FALSE(IsRepeated(SYS_semtimedop, {0, 0, 0, AddressOf(&longer)}));
  EXPECT_TRUE(IsRepeated(SYS_semtimedop, {0, 0, 0, 0}));
  EXPECT_FALSE(IsRepeated(SYS_semtimedop, {0, 0, 0, 8}));
}

TEST_F(RepeatCallTest, EachTimeoutBeginsAnewWhereTheThreadRanAMomentBefore) {
  stackd_repeat_prepare(STACKD_REPEAT_EACH_S);
  EXPECT_TRUE(IsRepeated(SYS_poll, {0, 0, 300'000}));
  EXPECT_TRUE(IsRepeated(SYS_poll, {0, 0, 0x7fff'ffff}));
  timespec day = {86'400, 0};
  EXPECT_TRUE(IsRepeated(SYS_semtimedop, {0, 0, 0, AddressOf(&day)}));
  EXPECT_FALSE(IsRepeated(SYS_semtimedop, {0, 0, 0, 8}));
}

TEST_F(RepeatCallTest, NoTimeoutBeginsAnewWhereNoneMay) {
  stackd_repeat_prepare(0);
  timespec second = {1, 0};
  EXPECT_FALSE(IsRepeated(SYS_poll, {0, 0, 1}));
  EXPECT_TRUE(IsRepeated(SYS_poll, {0, 0, 0xffff'ffff}));
  EXPECT_FALSE(IsRepeated(SYS_semtimedop, {0, 0, 0, AddressOf(&second)}));
  EXPECT_TRUE(IsRepeated(SYS_semtimedop, {}));
  EXPECT_FALSE(IsRepeated(SYS_nanosleep, {AddressOf(&second)}));
  EXPECT_TRUE(IsRepeated(SYS_nanosleep, {AddressOf(&second), AddressOf(&second)}));
  EXPECT_TRUE(IsRepeated(SYS_rt_sigsuspend, {}));
  std::array<int, 2> ends;
  ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()));
  EXPECT_FALSE(IsRepeated(SYS_recvfrom, {static_cast<uint64_t>(ends[0])}));
}

// Its frame is where that of such a handler would be: whether one has ended the call is not to be seen.
TEST_F(RepeatCallTest, NoCallIsRepeatedWhereAHandlerMayHaveEndedIt) {
  struct sigaction action = {};
  action.sa_handler = [](int) {};
  struct sigaction before;
  ASSERT_EQ(0, sigaction(SIGUSR2, &action, &before));
  stackd_repeat_prepare(STACKD_REPEAT_ANEW_S);
  EXPECT_FALSE(IsRepeated(SYS_pause, {}));
  ASSERT_EQ(0, sigaction(SIGUSR2, &before, nullptr));
  stackd_repeat_prepare(STACKD_REPEAT_ANEW_S);
  EXPECT_TRUE(IsRepeated(SYS_pause, {}));
}

// As PHP's for its own time limit: what it leaves is overwritten by ours.
TEST_F(RepeatCallTest, BesideAHandlerOnTheAlternateStackOnlyCallsWithATimeLimitAreRepeated) {
  // Ours is on such a stack, and the call was made on another one, where no handler has run.
  std::array<uint8_t, 64 << 10> stack = {};
  context_.uc_stack.ss_sp = reinterpret_cast<uint8_t*>(&context_) - 4096;
  context_.uc_stack.ss_size = 8192;
  context_.uc_mcontext.gregs[REG_RSP] = reinterpret_cast<greg_t>(stack.data() + stack.size() - 64);
  struct sigaction action = {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_ONSTACK;
  struct sigaction before;
  ASSERT_EQ(0, sigaction(SIGPROF, &action, &before));
  stackd_repeat_prepare(STACKD_REPEAT_ANEW_S);
  timespec second = {1, 0};
  EXPECT_TRUE(IsRepeated(SYS_nanosleep, {AddressOf(&second), AddressOf(&second)}));
  EXPECT_TRUE(IsRepeated(SYS_poll, {0, 0, 1000}));
  EXPECT_TRUE(IsRepeated(SYS_ppoll, {0, 0, AddressOf(&second)}));
  EXPECT_FALSE(IsRepeated(SYS_poll, {0, 0, 0xffff'ffff}));
  EXPECT_FALSE(IsRepeated(SYS_ppoll, {0, 0, 0}));
  EXPECT_FALSE(IsRepeated(SYS_pause, {}));
  ASSERT_EQ(0, sigaction(SIGPROF, &before, nullptr));
}

TEST_F(RepeatCallTest, ASleepGoesOnWhereItsRestIsKnown) {
  timespec longer = {3600, 0};
  timespec rest = {1800, 0};
  EXPECT_TRUE(IsRepeated(SYS_nanosleep, {AddressOf(&longer), AddressOf(&longer)}));
  EXPECT_FALSE(IsRepeated(SYS_nanosleep, {AddressOf(&longer), AddressOf(&rest)}));
  EXPECT_FALSE(IsRepeated(SYS_nanosleep, {AddressOf(&longer), 0}));
  EXPECT_FALSE(IsRepeated(SYS_clock_nanosleep, {CLOCK_MONOTONIC, 0, AddressOf(&longer), 0}));
  EXPECT_TRUE(IsRepeated(SYS_clock_nanosleep, {CLOCK_MONOTONIC, TIMER_ABSTIME, AddressOf(&longer), 0}));
  EXPECT_TRUE(IsRepeated(SYS_select, {0, 0, 0, 0, AddressOf(&longer)}));
}

TEST_F(RepeatCallTest, AFutexHasAPointInTimeOrATimeout) {
  timespec longer = {3600, 0};
  EXPECT_TRUE(IsRepeated(SYS_futex, {0, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 0, AddressOf(&longer)}));
  EXPECT_FALSE(IsRepeated(SYS_futex, {0, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, AddressOf(&longer)}));
}

TEST_F(RepeatCallTest, ASocketHasItsOwnTimeouts) {
  std::array<int, 2> ends;
  ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()));
  timeval longer = {3600, 0};
  ASSERT_EQ(0, setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &longer, sizeof(longer)));
  auto fd = static_cast<uint64_t>(ends[0]);
  EXPECT_FALSE(IsRepeated(SYS_recvfrom, {fd}));
  EXPECT_TRUE(IsRepeated(SYS_sendto, {fd}));
  EXPECT_TRUE(IsRepeated(SYS_recvfrom, {static_cast<uint64_t>(ends[1])}));
  EXPECT_FALSE(IsRepeated(SYS_recvfrom, {~0ull}));
}

TEST_F(RepeatCallTest, OtherCallsEnd) {
  // A connection that is made in the background meanwhile: the second call would say so.
  EXPECT_FALSE(IsRepeated(SYS_connect, {0}));
  EXPECT_FALSE(IsRepeated(SYS_futex_waitv, {0}));
  Interrupt(SYS_pause, {});
  context_.uc_mcontext.gregs[REG_RAX] = 0;
  stackd_repeat_call(&context_);
  EXPECT_EQ(0, context_.uc_mcontext.gregs[REG_RAX]);
}

TEST_F(RepeatCallTest, ASignalOfTheProgramEndsTheCall) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  sigset_t before;
  ASSERT_EQ(0, pthread_sigmask(SIG_BLOCK, &signals, &before));
  ASSERT_EQ(0, raise(SIGUSR1));
  EXPECT_FALSE(IsRepeated(SYS_pause, {}));
  // Where the program itself blocks it, it waits for a call that opens it, as sigsuspend() does.
  Interrupt(SYS_rt_sigsuspend, {});
  sigaddset(&context_.uc_sigmask, SIGUSR1);
  EXPECT_TRUE(IsRepeated());
  const timespec at_once = {0, 0};
  EXPECT_EQ(SIGUSR1, sigtimedwait(&signals, nullptr, &at_once));
  ASSERT_EQ(0, pthread_sigmask(SIG_SETMASK, &before, nullptr));
}

}  // namespace
}  // namespace stackd
