extern "C" {
#include "agent/crash/active_fault.h"
}

#include <gtest/gtest.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

namespace stackd {
namespace {

constexpr uint64_t kStackBytes = 0x10000;
constexpr uint64_t kElsewhere = 0x7fff0000;

// Signal frames in memory that is to be a stack.
class ActiveFault : public testing::Test {
 protected:
  ActiveFault() { stackd_active_fault_reset_after_fork(); }

  uint64_t Low() const { return reinterpret_cast<uint64_t>(stack_); }
  uint64_t Frame() const { return Low() + 0xe000; }

  stackd_active_fault* Enter(uint64_t address, int signal_number = SIGSEGV, bool alternate = true) {
    stackd_signal_frame frame{};
    frame.address = frame.new_address = address;
    if (alternate) {
      frame.alternate_low = Low();
      frame.alternate_bytes = kStackBytes;
    }
    stackd_signal_frame_info(&frame)->si_code = 77;
    auto* context = static_cast<ucontext_t*>(stackd_signal_frame_context(&frame));
    context->uc_mcontext.gregs[REG_RIP] = 0x1111;
    context->uc_mcontext.gregs[REG_RSP] = kElsewhere;
    return stackd_active_fault_enter(tid_, signal_number, &frame);
  }
  stackd_active_fault* Enter() { return Enter(Frame()); }

  uint32_t tid_ = static_cast<uint32_t>(syscall(SYS_gettid));
  alignas(16) char stack_[kStackBytes] = {};
};

TEST_F(ActiveFault, CountsWhileTheThreadIsBelowTheSignalsFrameOnItsStack) {
  stackd_active_fault* fault = Enter();
  ASSERT_NE(fault, nullptr);
  EXPECT_EQ(stackd_active_fault_around(tid_, Frame() - 8), fault);
  EXPECT_EQ(stackd_active_fault_around(tid_, Low()), fault);
  EXPECT_EQ(stackd_active_fault_around(tid_, Low() - 8), nullptr) << "below the alternate stack";
  EXPECT_EQ(stackd_active_fault_around(tid_, Frame() + 8), nullptr) << "left by longjmp";
  EXPECT_EQ(stackd_active_fault_around(tid_, kElsewhere), nullptr);
  EXPECT_EQ(stackd_active_fault_around(tid_ + 1, Frame() - 8), nullptr) << "another thread";
  stackd_active_fault_leave(fault, false);
  EXPECT_EQ(stackd_active_fault_around(tid_, Frame() - 8), nullptr);
}

TEST_F(ActiveFault, OnTheThreadsOwnStackTheFrameMustBeWhole) {
  stackd_active_fault* fault = Enter(Frame(), SIGSEGV, false);
  EXPECT_EQ(stackd_active_fault_around(tid_, Frame() - 8), fault);
  *reinterpret_cast<uint64_t*>(Frame()) += 1;  // a function that was called later wrote there
  EXPECT_EQ(stackd_active_fault_around(tid_, Frame() - 8), nullptr);
}

TEST_F(ActiveFault, TheOutermostIsTheOriginalOne) {
  stackd_active_fault* outer = Enter();
  stackd_active_fault* inner = Enter(Frame() - 0x1000, SIGBUS);
  ASSERT_NE(inner, outer);
  EXPECT_EQ(stackd_active_fault_around(tid_, Frame() - 0x2000), outer);
  EXPECT_EQ(stackd_active_fault_around(tid_, Frame() - 0x800), outer);
}

TEST_F(ActiveFault, OneThatWasLeftWithoutAWordIsFoundAtTheNextFault) {
  stackd_active_fault* fault = Enter();
  uint32_t index = 0;
  EXPECT_EQ(stackd_active_fault_stale(tid_, Frame() - 8, &index), nullptr) << "a fault inside of the handler";
  index = 0;
  EXPECT_EQ(stackd_active_fault_stale(tid_, kElsewhere, &index), fault);
  stackd_active_fault_leave(fault, false);
  index = 0;
  EXPECT_EQ(stackd_active_fault_stale(tid_, kElsewhere, &index), nullptr);
}

TEST_F(ActiveFault, OneThatReturnedIsKnownByThePlaceWhereItReturnedTo) {
  stackd_active_fault* fault = Enter();
  ucontext_t context = *static_cast<ucontext_t*>(fault->context);
  stackd_active_fault_leave(fault, true);
  memset(stack_, 0, sizeof(stack_));
  stackd_active_fault* kept = stackd_active_fault_returned(tid_, SIGSEGV, &context);
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(kept->kept_info.si_code, 77);
  EXPECT_EQ(stackd_active_fault_returned(tid_, SIGBUS, &context), nullptr);
  EXPECT_EQ(stackd_active_fault_around(tid_, Frame() - 8), nullptr);
  context.uc_mcontext.gregs[REG_RIP]++;
  EXPECT_EQ(stackd_active_fault_returned(tid_, SIGSEGV, &context), nullptr) << "it went on";
}

TEST_F(ActiveFault, AFullTableTakesNoMoreUntilAThreadHasEnded) {
  stackd_active_fault* last = nullptr;
  int count = 0;
  for (stackd_active_fault* fault; (fault = Enter(Frame() - 16 * static_cast<uint64_t>(count))) != nullptr; count++)
    last = fault;
  EXPECT_GE(count, 4);
  last->tid = 0x3fffffff;  // of no thread
  EXPECT_EQ(Enter(), last);
  EXPECT_EQ(Enter(), nullptr);
}

}  // namespace
}  // namespace stackd
