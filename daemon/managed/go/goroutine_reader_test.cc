// More goroutines than one thread reads alone, of a made-up program. (tests/e2e/go_test.py has those of real programs.)
#include "daemon/managed/go/goroutine_reader.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "daemon/managed/go/testing/made_up_program.h"

namespace stackd {
namespace {

class GoroutineReaderTest : public GoProgramTest {
 protected:
  // A `g` and its stack, of which the outermost words are in use.
  static constexpr uint64_t kStackBytes = 2048, kUsedBytes = 64, kBytesEach = 512 + kStackBytes;
  // Twenty times what one thread reads at once, and some.
  static constexpr uint64_t kCount = 20 * 256 + 17;

  GoroutineReaderTest() : goroutines_(kCount * kBytesEach), list_(kCount) {
    Load();
    auto binary = Find();
    EXPECT_TRUE(binary.has_value()) << binary.error().message;
    if (binary) binary_ = std::make_unique<GoBinary>(std::move(*binary));
    for (uint64_t i = 0; i < kCount; ++i) MakeGoroutine(i);
    const uint64_t slice[] = {reinterpret_cast<uint64_t>(list_.data()), kCount, kCount};
    memcpy(mapped_ + kGoroutines, slice, sizeof(slice));
  }

  template <typename T>
  void Set(uint64_t i, uint32_t offset, T value) {
    memcpy(&goroutines_[i * kBytesEach + offset], &value, sizeof(value));
  }

  static bool IsDead(uint64_t i) { return i % 5 == 3; }
  static uint64_t IdOf(uint64_t i) { return 7 * i + 1; }
  // Where main.inner is compiled in, and behind that.
  static bool IsInInlined(uint64_t i) { return i % 3 == 0; }

  void MakeGoroutine(uint64_t i) {
    const auto& at = binary_->layout().g;
    const uint64_t g_avma = list_[i] = reinterpret_cast<uint64_t>(&goroutines_[i * kBytesEach]);
    const uint64_t stack_lo = g_avma + kBytesEach - kStackBytes, outer_avma = kBase + kOuter + bias();
    Set(i, at.stack_lo, stack_lo);
    Set(i, at.stack_hi, stack_lo + kStackBytes);
    Set(i, at.sched_sp, stack_lo + kStackBytes - kUsedBytes);
    Set(i, at.sched_pc, outer_avma + (IsInInlined(i) ? 0x18 : 0x30));
    Set(i, at.atomic_status, IsDead(i) ? kGoDead : kGoWaiting);
    Set(i, at.goid, IdOf(i));
    Set(i, at.start_pc, outer_avma);
    Set(i, at.parent_goid, i);
  }

  ManagedFacts Read() const {
    ManagedFacts facts;
    const Capture capture;
    const RuntimeInput input{.capture = capture, .memory = &memory_, .deadline_ns = INT64_MAX};
    EXPECT_EQ(GoroutineReader(*binary_, bias(), input, &facts).Read(), "");
    return facts;
  }

  // All that live, in the order of the list, each with what is its own.
  static void Check(const ManagedFacts& facts) {
    EXPECT_TRUE(facts.notes.empty()) << facts.notes[0];
    EXPECT_EQ(facts.task_stacks.size(), 2u);
    size_t place = 0;
    for (uint64_t i = 0; i < kCount; ++i) {
      if (IsDead(i)) continue;
      ASSERT_LT(place, facts.tasks.size());
      const ManagedTask& task = facts.tasks[place++];
      ASSERT_EQ(task.id, IdOf(i));
      ASSERT_EQ(task.creator_id, i);
      ASSERT_EQ(task.state, "waiting");
      ASSERT_LT(static_cast<size_t>(task.stack), facts.task_stacks.size());
      const std::vector<ManagedFrame>& frames = facts.task_stacks[static_cast<size_t>(task.stack)].frames;
      ASSERT_EQ(frames.size(), IsInInlined(i) ? 2u : 1u);
      ASSERT_EQ(frames.front().function, IsInInlined(i) ? "main.inner" : "main.outer");
      ASSERT_EQ(frames.back().function, "main.outer");
    }
    EXPECT_EQ(place, facts.tasks.size());
  }

  std::vector<uint8_t> goroutines_;
  std::vector<uint64_t> list_;
  std::unique_ptr<GoBinary> binary_;
};

TEST_F(GoroutineReaderTest, WhatTwoThreadsReadComesInTheOrderOfTheList) {
  for (int time = 0; time < 20; ++time) Check(Read());
}

TEST_F(GoroutineReaderTest, TwoDumpsOfAProgramAtATimeReadTheSame) {
  const auto read = [this] {
    for (int time = 0; time < 10; ++time) Check(Read());
  };
  std::jthread other(read);
  read();
}

TEST_F(GoroutineReaderTest, ThoseThatAreNoneAreLeftOutAndOfTheOthersNoneIsLost) {
  // In several of the parts that a thread reads at once: they are looked at again and again.
  for (uint64_t i = 100; i < kCount; i += 500) list_[i] = 8;
  const ManagedFacts facts = Read();
  size_t place = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    if (IsDead(i) || list_[i] == 8) continue;
    while (place < facts.tasks.size() && facts.tasks[place].id != IdOf(i)) ++place;
    ASSERT_LT(place, facts.tasks.size()) << "goroutine " << IdOf(i) << " is not there, or before its place";
  }
}

}  // namespace
}  // namespace stackd
