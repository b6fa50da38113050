extern "C" {
#include "agent/active_fault.h"
}

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

namespace stackd {
namespace {

constexpr uint64_t kAltstack = 0x70000000;
constexpr uint64_t kAltstackBytes = 0x10000;
constexpr uint64_t kFrame = kAltstack + 0xf000;
constexpr uint64_t kElsewhere = 0x7fff0000;

class ActiveFault : public testing::Test {
 protected:
  ActiveFault() {
    stackd_active_fault_reset_after_fork();
    context_.uc_stack.ss_sp = reinterpret_cast<void*>(kAltstack);
    context_.uc_stack.ss_size = kAltstackBytes;
    context_.uc_mcontext.gregs[REG_RIP] = 0x1111;
    context_.uc_mcontext.gregs[REG_RSP] = kElsewhere;
    info_.si_code = 77;
  }

  stackd_active_fault* Enter(uint64_t frame = kFrame, int signal_number = SIGSEGV) {
    return stackd_active_fault_enter(tid_, frame, signal_number, &info_, &context_);
  }

  uint32_t tid_ = static_cast<uint32_t>(syscall(SYS_gettid));
  siginfo_t info_{};
  ucontext_t context_{};
};

TEST_F(ActiveFault, CountsWhileTheThreadIsBelowTheHandlersFrameOnItsStack) {
  stackd_active_fault* fault = Enter();
  ASSERT_NE(fault, nullptr);
  EXPECT_EQ(stackd_active_fault_around(tid_, kFrame - 8), fault);
  EXPECT_EQ(stackd_active_fault_around(tid_, kAltstack), fault);
  EXPECT_EQ(stackd_active_fault_around(tid_, kAltstack - 8), nullptr) << "below the alternate stack";
  EXPECT_EQ(stackd_active_fault_around(tid_, kFrame + 8), nullptr) << "left by longjmp";
  EXPECT_EQ(stackd_active_fault_around(tid_, kElsewhere), nullptr);
  EXPECT_EQ(stackd_active_fault_around(tid_ + 1, kFrame - 8), nullptr) << "another thread";
  stackd_active_fault_leave(fault, false);
  EXPECT_EQ(stackd_active_fault_around(tid_, kFrame - 8), nullptr);
}

TEST_F(ActiveFault, TheOutermostIsTheOriginalOne) {
  stackd_active_fault* outer = Enter();
  stackd_active_fault* inner = Enter(kFrame - 0x1000, SIGBUS);
  ASSERT_NE(inner, outer);
  EXPECT_EQ(stackd_active_fault_around(tid_, kFrame - 0x2000), outer);
  EXPECT_EQ(stackd_active_fault_around(tid_, kFrame - 0x800), outer);
}

TEST_F(ActiveFault, OneThatWasLeftWithoutAWordIsFoundAtTheNextFault) {
  stackd_active_fault* fault = Enter();
  uint32_t index = 0;
  EXPECT_EQ(stackd_active_fault_stale(tid_, kFrame - 8, &index), nullptr) << "a fault inside of the handler";
  index = 0;
  EXPECT_EQ(stackd_active_fault_stale(tid_, kElsewhere, &index), fault);
  stackd_active_fault_leave(fault, false);
  index = 0;
  EXPECT_EQ(stackd_active_fault_stale(tid_, kElsewhere, &index), nullptr);
}

TEST_F(ActiveFault, OneThatReturnedIsKnownByThePlaceWhereItReturnedTo) {
  stackd_active_fault_leave(Enter(), true);
  info_.si_code = 0;
  stackd_active_fault* kept = stackd_active_fault_returned(tid_, SIGSEGV, &context_);
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(kept->kept_info.si_code, 77);
  EXPECT_EQ(stackd_active_fault_returned(tid_, SIGBUS, &context_), nullptr);
  EXPECT_EQ(stackd_active_fault_around(tid_, kFrame - 8), nullptr);
  context_.uc_mcontext.gregs[REG_RIP]++;
  EXPECT_EQ(stackd_active_fault_returned(tid_, SIGSEGV, &context_), nullptr) << "it went on";
}

TEST_F(ActiveFault, AFullTableTakesNoMoreUntilAThreadHasEnded) {
  stackd_active_fault* last = nullptr;
  int count = 0;
  for (stackd_active_fault* fault; (fault = Enter(kFrame - static_cast<uint64_t>(count))) != nullptr; count++) last = fault;
  EXPECT_GE(count, 4);
  last->tid = 0x3fffffff;  // of nobody
  EXPECT_EQ(Enter(), last);
  EXPECT_EQ(Enter(), nullptr);
}

}  // namespace
}  // namespace stackd
