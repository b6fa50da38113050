#include "daemon/managed/cpython/find_gil.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cstring>

namespace stackd {
namespace {

// As CPython has them, in this process.
struct Interpreter {
  uint64_t something = 0;
};
struct ThreadState {
  uint64_t previous = 0, next = 0, interpreter = 0, more[14] = {}, thread_id = 0, last[6] = {};
};
struct Gil {
  uint64_t interval_us = 5000;
  uint64_t last_holder = 0;
  int32_t locked = 1;
  uint32_t pad = 0;
  uint64_t switch_number = 0;
  uint32_t condition[12] = {};
  uint64_t mutex[5] = {};
  uint32_t switch_condition[12] = {};
};

uint64_t Address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

class FindGil : public testing::Test {
 protected:
  void SetUp() override {
    Fd memory(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(files_.SetMemory(&memory));
    state_.interpreter = Address(&interpreter_);
    gil_.last_holder = Address(&state_);
  }

  static ThreadCapture Waiter(int32_t tid, const void* futex) {
    ThreadCapture thread;
    thread.tid = tid;
    thread.call = SystemCall{.number = SYS_futex, .known_arguments = 3, .arguments = {Address(futex)}};
    return thread;
  }

  std::vector<ManagedWait> Find(const std::vector<ThreadCapture>& threads, const std::set<int32_t>& holders) {
    return FindGilWaits(threads, {Address(&interpreter_)}, holders, files_);
  }

  ProcessFiles files_;
  Interpreter interpreter_;
  ThreadState state_;
  Gil gil_;
};

TEST_F(FindGil, AThreadThatSleepsOnOneOfItsConditionVariablesWaitsForItsHolder) {
  for (const void* futex : {&gil_.condition[10], &gil_.condition[11], &gil_.switch_condition[10], &gil_.condition[8],
                            &gil_.switch_condition[9]}) {
    const auto waits = Find({Waiter(7, futex)}, {5});
    ASSERT_EQ(waits.size(), 1u);
    EXPECT_EQ(waits[0].waiter_tid, 7);
    EXPECT_EQ(waits[0].owner_tid, 5);
    EXPECT_EQ(waits[0].lock_avma, Address(&gil_));
    EXPECT_EQ(waits[0].kind, ManagedLockKind::kGil);
  }
}

TEST_F(FindGil, OfTwoThatHadItInTurnNeitherIsSaidToHaveIt) {
  const auto waits = Find({Waiter(7, &gil_.condition[10])}, {5, 6});
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].owner_tid, 0);
}

TEST_F(FindGil, OfTwoInterpretersWhichMayHaveALockEachNoThreadIsSaidToHaveIt) {
  const Interpreter other;
  const auto waits = FindGilWaits({Waiter(7, &gil_.condition[10])}, {Address(&interpreter_), Address(&other)}, {5}, files_);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].waiter_tid, 7);
  EXPECT_EQ(waits[0].owner_tid, 0);
}

TEST_F(FindGil, ALockOfTheProgramsIsNone) {
  EXPECT_TRUE(Find({Waiter(7, &gil_.switch_number)}, {5}).empty());
  EXPECT_TRUE(Find({Waiter(7, nullptr)}, {5}).empty());
  state_.interpreter = 0x1234;
  EXPECT_TRUE(Find({Waiter(7, &gil_.condition[10])}, {5}).empty());
}

TEST_F(FindGil, WhatMakesNoSenseIsNone) {
  gil_.locked = 17;
  EXPECT_TRUE(Find({Waiter(7, &gil_.condition[10])}, {5}).empty());
  gil_.locked = 1;
  gil_.interval_us = 0;
  EXPECT_TRUE(Find({Waiter(7, &gil_.condition[10])}, {5}).empty());
  gil_.interval_us = 5000;
  gil_.last_holder = 8;
  EXPECT_TRUE(Find({Waiter(7, &gil_.condition[10])}, {5}).empty());
}

TEST_F(FindGil, AThreadInAnotherCallDoesNotWait) {
  ThreadCapture thread = Waiter(7, &gil_.condition[10]);
  thread.call->number = SYS_read;
  EXPECT_TRUE(Find({thread}, {5}).empty());
}

// What a second look at waits that are known says.
TEST_F(FindGil, WhoHasItIsReadAgainFromTheLockItself) {
  Capture capture;
  ThreadCapture& holder = capture.threads.emplace_back();
  holder.tid = 5;
  holder.thread_self_avma = 0x7f0000001000;
  state_.thread_id = holder.thread_self_avma;
  const std::vector<ManagedWait> known = Find({Waiter(7, &gil_.condition[10])}, {5});
  ASSERT_EQ(known.size(), 1u);
  std::vector<ThreadWait> sleeping = {{.tid = 7, .call = Waiter(7, &gil_.condition[11]).call}};
  const WaitInput input = {capture, known, sleeping, files_, INT64_MAX};
  const auto owner = [&] {
    const auto waits = ReadGilWaits(input);
    return waits.empty() ? -1 : waits[0].owner_tid;
  };
  EXPECT_EQ(owner(), 5);
  gil_.locked = 0;
  EXPECT_EQ(owner(), 0) << "it is free";
  gil_.locked = 1;
  state_.thread_id = 0x7f0000002000;
  EXPECT_EQ(owner(), 0) << "a thread that is not known has it";
  sleeping[0].call = Waiter(7, &state_).call;
  EXPECT_EQ(owner(), -1) << "it sleeps on something else";
}

}  // namespace
}  // namespace stackd
