#include "daemon/analyze/code/code_loop.h"

#include <gtest/gtest.h>

#include "daemon/unwind/testing/own_process.h"

namespace stackd {
namespace {

// Kept as they stand by noipa: a loop of two rounds, known at the call, would become two calls.
uint64_t return_avma;

__attribute__((noipa)) bool Task() {
  return_avma = reinterpret_cast<uint64_t>(__builtin_return_address(0));
  __asm__ volatile("" ::: "memory");
  return return_avma != 0;
}

__attribute__((noipa)) void RunOne(bool (*task)()) {
  task();
  __asm__ volatile("" ::: "memory");
}

__attribute__((noipa)) void RunSome(bool (*task)(), int count) {
  for (int i = 0; i < count && task(); ++i) __asm__ volatile("" ::: "memory");
}

// A loop that is over when the call is made.
__attribute__((noipa)) void RunAfterLoop(bool (*task)(), int count) {
  for (int i = 0; i < count; ++i) __asm__ volatile("" ::: "memory");
  task();
  __asm__ volatile("" ::: "memory");
}

TEST(CodeLoop, IsSeenWhereTheCodeLeadsBackToTheCall) {
  const auto map = OwnAddressMap();
  RunSome(Task, 2);
  EXPECT_TRUE(IsCalledInLoop(*map, return_avma));
}

TEST(CodeLoop, IsNotSeenWhereTheFunctionReturns) {
  const auto map = OwnAddressMap();
  RunOne(Task);
  EXPECT_FALSE(IsCalledInLoop(*map, return_avma));
  RunAfterLoop(Task, 3);
  EXPECT_FALSE(IsCalledInLoop(*map, return_avma));
}

TEST(CodeLoop, IsNotSeenWhereNoCodeCanBeRead) {
  EXPECT_FALSE(IsCalledInLoop(AddressMap({}), 0x401000));
  EXPECT_FALSE(IsCalledInLoop(*OwnAddressMap(), reinterpret_cast<uint64_t>(&return_avma)));
}

}  // namespace
}  // namespace stackd
