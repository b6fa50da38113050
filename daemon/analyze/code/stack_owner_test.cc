#include "daemon/analyze/code/stack_owner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stackd {
namespace {

// Two stacks of 1 MiB, the lower one's first; each with its thread's descriptor in the last page.
constexpr uint64_t kLow = 0x7f0000000000, kHigh = 0x7f0000100000, kEnd = 0x7f0000200000;
constexpr uint64_t kFromTop = 0x900;

class StackOwnersTest : public testing::Test {
 protected:
  StackOwnersTest() {
    mapping_.start_avma = kLow;
    mapping_.end_avma = kEnd;
    // The order of tids says nothing of that of stacks.
    AddThread(1, kEnd - 0x3000, kEnd - kFromTop);
    AddThread(2, kHigh - 0x3000, kHigh - kFromTop);
  }

  void AddThread(int32_t tid, uint64_t rsp_avma, uint64_t self_avma) {
    ThreadCapture& thread = capture_.threads.emplace_back();
    thread.tid = tid;
    thread.has_stack = true;
    thread.thread_self_avma = self_avma;
    thread.registers.value[Registers::kRsp] = rsp_avma;
  }

  static int32_t TidOf(const ThreadCapture* thread) { return thread == nullptr ? 0 : thread->tid; }
  int32_t OwnerOf(uint64_t avma) const { return TidOf(StackOwners(capture_).Of(mapping_, avma)); }

  Capture capture_;
  Mapping mapping_{};
};

TEST_F(StackOwnersTest, OfTwoStacksInOneMappingEachHasItsThread) {
  EXPECT_EQ(OwnerOf(kHigh - 0x2000), 2);
  EXPECT_EQ(OwnerOf(kEnd - 0x2000), 1);
}

TEST_F(StackOwnersTest, WhatAThreadUsesBelowItsStackPointerIsItsOwn) {
  EXPECT_EQ(OwnerOf(kEnd - 0x3000 - 64), 1);
  EXPECT_EQ(OwnerOf(kHigh - 0x3000 - 64), 2);
}

TEST_F(StackOwnersTest, TheDescriptorBelongsToTheStackBelowIt) { EXPECT_EQ(OwnerOf(kHigh - 1), 2); }

TEST_F(StackOwnersTest, BehindTheTopOfAStackTheNextOneBegins) { EXPECT_EQ(OwnerOf(kHigh + 0x1000), 1); }

TEST_F(StackOwnersTest, TheOnlyThreadOfAMappingOwnsAllOfIt) {
  capture_.threads.pop_back();
  EXPECT_EQ(OwnerOf(kLow), 1);
  EXPECT_EQ(OwnerOf(kEnd - 1), 1);
}

TEST_F(StackOwnersTest, ThreadsElsewhereOwnNothingHere) {
  capture_.threads.clear();
  AddThread(3, kLow - 8, kLow - 8);
  AddThread(4, kEnd, kEnd + 0x1000);
  EXPECT_EQ(OwnerOf(kLow), 0);
  EXPECT_EQ(OwnerOf(kEnd - 1), 0);
}

TEST_F(StackOwnersTest, AThreadWithoutAStackOwnsNone) {
  for (ThreadCapture& thread : capture_.threads) thread.has_stack = false;
  EXPECT_EQ(OwnerOf(kHigh - 0x2000), 0);
}

TEST_F(StackOwnersTest, TheFirstAboveIsTheNearest) {
  const StackOwners owners(capture_);
  EXPECT_EQ(TidOf(owners.FirstAbove(mapping_, kLow + 0x10)), 2);
  EXPECT_EQ(TidOf(owners.FirstAbove(mapping_, kHigh + 0x10)), 1);
  EXPECT_EQ(TidOf(owners.FirstAbove(mapping_, kEnd - 0x10)), 0);
}

}  // namespace
}  // namespace stackd
