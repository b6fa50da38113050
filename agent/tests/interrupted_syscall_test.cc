extern "C" {
#include "agent/capture/interrupted_syscall.h"
}

#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <vector>

namespace stackd {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kInterrupted = static_cast<uint64_t>(-EINTR);

// A page of code, with nothing mapped before and behind it.
class InterruptedCallTest : public testing::Test {
 protected:
  InterruptedCallTest() {
    void* all = mmap(nullptr, 3 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page_ = reinterpret_cast<uint64_t>(all) + kPage;
    mprotect(reinterpret_cast<void*>(page_), kPage, PROT_READ | PROT_WRITE);
  }
  ~InterruptedCallTest() override { munmap(reinterpret_cast<void*>(page_ - kPage), 3 * kPage); }

  // Puts `code` so that it ends `at` bytes into the page; returns the address of its end.
  uint64_t Put(const std::vector<uint8_t>& code, uint64_t at = 100) {
    memcpy(reinterpret_cast<void*>(page_ + at - code.size()), code.data(), code.size());
    return page_ + at;
  }

  static stackd_syscall At(uint64_t rip, uint64_t rax, const uint64_t* rsp = nullptr, const uint64_t* rbp = nullptr) {
    ucontext_t context{};
    context.uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(rip);
    context.uc_mcontext.gregs[REG_RAX] = static_cast<greg_t>(rax);
    context.uc_mcontext.gregs[REG_RSP] = reinterpret_cast<greg_t>(rsp);
    context.uc_mcontext.gregs[REG_RBP] = reinterpret_cast<greg_t>(rbp);
    context.uc_mcontext.gregs[REG_RDI] = 1;
    context.uc_mcontext.gregs[REG_RSI] = 2;
    context.uc_mcontext.gregs[REG_RDX] = 3;
    context.uc_mcontext.gregs[REG_R10] = 4;
    context.uc_mcontext.gregs[REG_R8] = 5;
    context.uc_mcontext.gregs[REG_R9] = 6;
    stackd_syscall call;
    memset(&call, 0xff, sizeof(call));
    stackd_interrupted_call(&context, &call);
    return call;
  }

  uint64_t page_;
};

TEST_F(InterruptedCallTest, ACallThatWillBeMadeAgainHasItsNumberInRax) {
  uint64_t end = Put({0x0f, 0x05});
  auto call = At(end - 2, SYS_pselect6);
  EXPECT_EQ(call.number, static_cast<uint32_t>(SYS_pselect6));
  EXPECT_EQ(call.known, STACKD_SYSCALL_KNOWN | 0x1f);
  EXPECT_EQ(call.arguments[0], 1u);
  EXPECT_EQ(call.arguments[1], 2u);
  EXPECT_EQ(call.arguments[2], 3u);
  EXPECT_EQ(call.arguments[3], 4u);
  EXPECT_EQ(call.arguments[4], 5u);
}

TEST_F(InterruptedCallTest, OfACallThatReturnsEintrTheCodeTellsTheNumber) {
  EXPECT_EQ(At(Put({0xb8, 0xe6, 0, 0, 0, 0x0f, 0x05}), kInterrupted).number, static_cast<uint32_t>(SYS_clock_nanosleep));
}

TEST_F(InterruptedCallTest, TheNumberIsFoundBeforeAReloadOfTheFirstArgument) {
  auto call = At(Put({0xb8, 0x19, 0x01, 0, 0, 0x8b, 0x7c, 0x24, 0x04, 0x0f, 0x05}), kInterrupted);
  EXPECT_EQ(call.number, static_cast<uint32_t>(SYS_epoll_pwait));
}

// mov 0x10(%rsp),%rax; syscall
const std::vector<uint8_t> kLoadByRsp = {0x48, 0x8b, 0x44, 0x24, 0x10, 0x0f, 0x05};
// mov 0x18(%rbp),%rax; syscall
const std::vector<uint8_t> kLoadByRbp = {0x48, 0x8b, 0x45, 0x18, 0x0f, 0x05};
// mov %r11,0x8(%rsp); syscall
const std::vector<uint8_t> kCancelArch = {0x4c, 0x89, 0x5c, 0x24, 0x08, 0x0f, 0x05};
// mov 0x20(%rsp),%rsi; mov %rax,%r8; mov %r10,%rdi; call
const std::vector<uint8_t> kCaller = {0x48, 0x8b, 0x74, 0x24, 0x20, 0x49, 0x89, 0xc0,
                                      0x4c, 0x89, 0xd7, 0xe8, 0x01, 0x02, 0x03, 0x04};

TEST_F(InterruptedCallTest, ANumberThatTheCodeTakesFromTheStackIsFoundThere) {
  const uint64_t stack[] = {0, 0, SYS_ppoll, SYS_clock_nanosleep};
  EXPECT_EQ(At(Put(kLoadByRsp), kInterrupted, stack).number, static_cast<uint32_t>(SYS_ppoll));
  EXPECT_EQ(At(Put(kLoadByRbp), kInterrupted, nullptr, stack).number, static_cast<uint32_t>(SYS_clock_nanosleep));
  const uint64_t no_number[] = {0, 0, 0x7fff12345678};
  EXPECT_EQ(At(Put(kLoadByRsp), kInterrupted, no_number).known, 0u);
  EXPECT_EQ(At(Put(kLoadByRsp), kInterrupted).known, 0u);
}

TEST_F(InterruptedCallTest, ANumberThatTheCallersCodeTakesFromTheStackIsFoundThere) {
  uint64_t stack[] = {Put(kCaller, 400), 0, 0, 0, 0, SYS_clock_nanosleep, SYS_ppoll};
  EXPECT_EQ(At(Put(kCancelArch), kInterrupted, stack).number, static_cast<uint32_t>(SYS_clock_nanosleep));
  // mov 0x30(%rbp),%rsi; call
  stack[0] = Put({0x48, 0x8b, 0x75, 0x30, 0xe8, 0x01, 0x02, 0x03, 0x04}, 400);
  EXPECT_EQ(At(Put(kCancelArch), kInterrupted, stack, stack).number, static_cast<uint32_t>(SYS_ppoll));
  // With a push in between it would be elsewhere.
  auto pushes = kCaller;
  pushes[5] = 0x90, pushes[6] = 0x41, pushes[7] = 0x50;
  stack[0] = Put(pushes, 400);
  EXPECT_EQ(At(Put(kCancelArch), kInterrupted, stack).known, 0u);
  // No call.
  auto jumps = kCaller;
  jumps[11] = 0xe9;
  stack[0] = Put(jumps, 400);
  EXPECT_EQ(At(Put(kCancelArch), kInterrupted, stack).known, 0u);
  stack[0] = page_ + kPage;
  EXPECT_EQ(At(Put(kCancelArch), kInterrupted, stack).known, 0u);
}

// glibc 2.41 of Debian 13.
TEST_F(InterruptedCallTest, TheCallsOfADistributionsLibraryAreKnown) {
  const uint64_t rip = Put({0x4d, 0x89, 0xca, 0x4c, 0x8b, 0x44, 0x24, 0x08, 0x4c, 0x8b,
                            0x4c, 0x24, 0x10, 0x4c, 0x89, 0x5c, 0x24, 0x08, 0x0f, 0x05},
                           1000);
  const uint64_t return_address =
      Put({0x41, 0x51, 0x4c, 0x8d, 0x9b, 0x08, 0x03, 0x00, 0x00, 0x49, 0x89, 0xc9, 0x48, 0x89, 0xf1, 0x41, 0x50, 0x48,
           0x8b, 0x74, 0x24, 0x20, 0x49, 0x89, 0xd0, 0x48, 0x89, 0xfa, 0x4c, 0x89, 0xdf, 0xe8, 0x78, 0xb3, 0x00, 0x00},
          2000);
  const uint64_t stack[] = {return_address, 1, 1, 1, 1, SYS_futex};
  EXPECT_EQ(At(rip, kInterrupted, stack).number, static_cast<uint32_t>(SYS_futex));
}

TEST_F(InterruptedCallTest, ANumberThatComesFromElsewhereIsNotGuessed) {
  EXPECT_EQ(At(Put({0x4c, 0x8b, 0x4c, 0x24, 0x08, 0x0f, 0x05}), kInterrupted).known, 0u);
  EXPECT_EQ(At(Put({0xb8, 0xe6, 0, 0, 0, 0x90, 0x90, 0x0f, 0x05}), kInterrupted).known, 0u);
  EXPECT_EQ(At(Put({0xb8, 0xe6, 0, 0x40, 0, 0x0f, 0x05}), kInterrupted).known, 0u);
}

TEST_F(InterruptedCallTest, AThreadThatRunsIsInNoCall) {
  uint64_t end = Put({0xb8, 0xe6, 0, 0, 0, 0x0f, 0x05});
  EXPECT_EQ(At(end, 0).known, 0u);
  EXPECT_EQ(At(end - 1, kInterrupted).known, 0u);
  EXPECT_EQ(At(end - 2, 1ull << 40).known, 0u);
  EXPECT_EQ(At(end - 7, SYS_read).known, 0u);
  EXPECT_EQ(At(end, kInterrupted).arguments[5], 0u);
}

TEST_F(InterruptedCallTest, CodeThatCannotBeReadIsLeftAlone) {
  for (uint64_t rip : {uint64_t{0}, uint64_t{1}, uint64_t{8}, page_, page_ + 5, page_ - 10, page_ + kPage + 1,
                       page_ + kPage + 7, ~uint64_t{0}, ~uint64_t{1}, uint64_t{1} << 63}) {
    EXPECT_EQ(At(rip, kInterrupted).known, 0u) << rip;
    EXPECT_EQ(At(rip, 1).known, 0u) << rip;
  }
  Put({0xb8, 0xe6, 0, 0, 0, 0x0f, 0x05}, kPage);
  EXPECT_NE(At(page_ + kPage, kInterrupted).known, 0u);
  EXPECT_NE(At(page_ + kPage - 2, SYS_read).known, 0u);
}

}  // namespace
}  // namespace stackd
