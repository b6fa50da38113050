#include "daemon/pipeline/frame_budget.h"

#include <gtest/gtest.h>

namespace stackd {
namespace {

std::vector<NamedStack> StacksOf(std::initializer_list<size_t> sizes) {
  std::vector<NamedStack> stacks;
  for (const size_t size : sizes) {
    NativeStack native{.frames = {}, .end = StackEnd::kRoot};
    native.frames.resize(size);
    stacks.push_back({std::move(native), {}});
  }
  return stacks;
}

std::vector<size_t> SizesOf(const std::vector<NamedStack>& stacks) {
  std::vector<size_t> sizes;
  for (const NamedStack& stack : stacks) sizes.push_back(stack.native.frames.size());
  return sizes;
}

TEST(FrameBudget, WhatFitsIsWholeAndHeldUntilItIsGone) {
  ByteBudget budget(1000 * kFrameBytes);
  auto stacks = StacksOf({10, 100});
  std::string note;
  {
    const HeldBytes held = FitFrames(&budget, -1, &stacks, &note);
    EXPECT_EQ(budget.held_bytes(), 110 * kFrameBytes);
  }
  EXPECT_EQ(budget.held_bytes(), 0);
  EXPECT_EQ(SizesOf(stacks), (std::vector<size_t>{10, 100}));
  EXPECT_EQ(note, "");
}

TEST(FrameBudget, LongStacksAreCutToOneLengthAndShortOnesAreWhole) {
  ByteBudget budget(200 * kFrameBytes);  // half of it for one dump
  auto stacks = StacksOf({10, 1000, 90, 20});
  std::string note;
  const HeldBytes held = FitFrames(&budget, -1, &stacks, &note);
  EXPECT_EQ(SizesOf(stacks), (std::vector<size_t>{10, 35, 35, 20}));
  EXPECT_EQ(stacks[0].native.end, StackEnd::kRoot);
  EXPECT_EQ(stacks[1].native.end, StackEnd::kFrameLimit);
  EXPECT_EQ(note, "this daemon has no memory for all frames of its stacks: each was cut to its 35 innermost");
}

TEST(FrameBudget, TheStackThatCrashedIsWhole) {
  ByteBudget budget(200 * kFrameBytes);
  auto stacks = StacksOf({80, 1000});
  std::string note;
  const HeldBytes held = FitFrames(&budget, 0, &stacks, &note);
  EXPECT_EQ(SizesOf(stacks), (std::vector<size_t>{80, 20}));
}

TEST(FrameBudget, WithNothingLeftEachHasItsInnermost) {
  ByteBudget budget(200 * kFrameBytes);
  HeldBytes other(&budget);
  other.Take(budget.limit_bytes());
  auto stacks = StacksOf({80, 0, 3});
  std::string note;
  const HeldBytes held = FitFrames(&budget, -1, &stacks, &note);
  EXPECT_EQ(SizesOf(stacks), (std::vector<size_t>{1, 0, 1}));
}

TEST(FrameBudget, ManyStacksAreCutAsTheyCome) {
  const ByteBudget budget(1000 * kFrameBytes);
  std::atomic<int64_t> frames = 0;
  NativeStack first{.frames = {}, .end = StackEnd::kRoot};
  first.frames.resize(900);
  CutIfMany(&budget, &frames, &first);
  EXPECT_EQ(first.frames.size(), 900u);
  NativeStack second = first, little = first;
  little.frames.resize(200);
  CutIfMany(&budget, &frames, &second);
  EXPECT_EQ(second.frames.size(), 256u);
  EXPECT_EQ(second.end, StackEnd::kFrameLimit);
  CutIfMany(&budget, &frames, &little);
  EXPECT_EQ(little.frames.size(), 200u);
}

TEST(FrameBudget, WithoutALimitAllAreWhole) {
  auto stacks = StacksOf({100'000});
  std::string note;
  const HeldBytes held = FitFrames(nullptr, -1, &stacks, &note);
  EXPECT_EQ(SizesOf(stacks), (std::vector<size_t>{100'000}));
}

}  // namespace
}  // namespace stackd
