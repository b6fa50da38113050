// Ruby's threads and locks as 3.1 keeps them, in this process's own memory. (What real ones look like is
// tests/e2e/ruby_test.py.)
#include "daemon/managed/ruby/ruby_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/syscall.h>

#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/fd.h"
#include "daemon/managed/ruby/ruby_objects.h"
#include "stackd/ruby_trace.h"

namespace stackd {
namespace {

constexpr uint64_t kVersion = 30102;

// Words of memory that hold structures.
template <size_t kBytes>
struct Block {
  alignas(8) std::array<uint64_t, kBytes / 8> words = {};
  uint64_t& at(size_t offset) { return words[offset / 8]; }
  uint64_t address(size_t offset = 0) { return reinterpret_cast<uint64_t>(words.data()) + offset; }
};

// Two threads of one ractor: the first has the lock of the VM and a Mutex, the second waits for either.
class RubyReaderTest : public testing::Test {
 protected:
  RubyReaderTest() {
    Fd mem(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(memory_.SetMemory(&mem));
    for (int i = 0; i < 2; ++i) {
      context_[i].at(48) = thread_[i].address();
      thread_[i].at(24) = ractor_.address();
      thread_[i].at(88) = 7 + static_cast<uint64_t>(i);
      fiber_[i].at(80 + 48) = thread_[i].address();
      Add(i, i == 0 ? STACKD_MANAGED_HOLDS_GIL : 0);
    }
    ractor_.at(336) = thread_[0].address();
    List(ractor_.address(384), {});
    // A Mutex: an object whose type is named so.
    strcpy(type_name_, "mutex");
    type_.at(0) = reinterpret_cast<uint64_t>(type_name_);
    object_.at(0) = 0x0c;
    object_.at(16) = type_.address();
    object_.at(32) = mutex_.address();
    mutex_.at(0) = fiber_[0].address();
    // On the stack of who waits.
    stack_.at(64) = object_.address();
    stack_.at(72) = thread_[1].address();
    List(mutex_.address(16), {stack_.address(64 + 24)});
    // A short text lies in its object.
    name_.at(0) = 0x05 | 6 << 14;
    memcpy(&name_.at(16), "seller", 6);
    thread_[1].at(352) = name_.address();
  }

  void Add(int i, uint16_t flags) {
    ThreadCapture& thread = capture_.threads.emplace_back();
    thread.tid = 7 + i;
    SystemCall call;
    call.number = SYS_futex;
    call.known_arguments = 0x3f;
    call.arguments = {0x1000, 0x80, 0, 0, 0, 0};
    thread.call = call;
    ManagedTrace trace;
    trace.runtime = STACKD_RUNTIME_RUBY;
    trace.version = kVersion;
    trace.flags = flags;
    trace.instance_avma = context_[i].address();
    thread.traces.push_back(std::move(trace));
  }

  static void Store(uint64_t address, uint64_t word) { memcpy(reinterpret_cast<void*>(address), &word, sizeof(word)); }

  static void List(uint64_t head, const std::vector<uint64_t>& nodes) {
    uint64_t at = head;
    for (const uint64_t node : nodes) {
      Store(at, node);
      Store(node + 8, at);
      at = node;
    }
    Store(at, head);
    Store(head + 8, at);
  }

  ManagedFacts Read() {
    ManagedFacts facts;
    RubyReader().Read({capture_, &memory_, std::numeric_limits<int64_t>::max()}, &facts);
    return facts;
  }

  std::vector<ManagedWait> ReadWaits(const ManagedFacts& facts) {
    capture_.managed = facts;
    std::vector<ThreadWait> sleeping;
    for (const ThreadCapture& thread : capture_.threads) {
      sleeping.push_back({.tid = thread.tid, .rsp_avma = stack_.address(), .call = thread.call});
    }
    std::vector<ManagedWait> waits;
    RubyReader().ReadWaits({capture_, facts.waits, sleeping, memory_, std::numeric_limits<int64_t>::max()}, &waits);
    return waits;
  }

  ProcessFiles memory_;
  Capture capture_;
  Block<56> context_[2];
  Block<512> thread_[2];
  Block<256> fiber_[2];
  Block<512> ractor_;
  Block<64> type_, object_, mutex_, name_;
  Block<256> stack_;
  char type_name_[8];
};

TEST_F(RubyReaderTest, ThreadsHaveTheNamesThatRubyGivesThemAndOneHasTheLock) {
  const ManagedFacts facts = Read();
  EXPECT_EQ(facts.runtimes.at(0).name, "Ruby 3.1.2");
  EXPECT_TRUE(facts.threads.at(7).holds_gil);
  EXPECT_FALSE(facts.threads.at(8).holds_gil);
  EXPECT_EQ(facts.threads.at(7).name, "");
  EXPECT_EQ(facts.threads.at(8).name, "seller");
  EXPECT_TRUE(facts.waits.empty());
}

TEST_F(RubyReaderTest, WhoWaitsForAMutexIsSaidToWaitForTheThreadThatHasIt) {
  thread_[1].at(264) = object_.address();
  const ManagedFacts facts = Read();
  ASSERT_EQ(facts.waits.size(), 1u);
  EXPECT_EQ(facts.waits[0].kind, ManagedLockKind::kMonitor);
  EXPECT_EQ(facts.waits[0].waiter_tid, 8);
  EXPECT_EQ(facts.waits[0].owner_tid, 7);
  EXPECT_EQ(facts.waits[0].lock, "Thread::Mutex");
  EXPECT_EQ(ReadWaits(facts).size(), 1u);
  mutex_.at(0) = 0;
  ASSERT_EQ(ReadWaits(facts).size(), 1u);
  EXPECT_EQ(ReadWaits(facts)[0].owner_tid, 0);
  List(mutex_.address(16), {});
  EXPECT_TRUE(ReadWaits(facts).empty()) << "it waits no more";
}

TEST_F(RubyReaderTest, AMutexMayHaveAFieldMoreBeforeItsWaiters) {
  thread_[1].at(264) = object_.address();
  mutex_.at(16) = 0;
  List(mutex_.address(24), {stack_.address(64 + 24)});
  ASSERT_EQ(Read().waits.size(), 1u);
  mutex_.at(24) = 0;
  EXPECT_TRUE(Read().waits.empty());
}

TEST_F(RubyReaderTest, WhatIsNoMutexIsNone) {
  thread_[1].at(264) = object_.address();
  for (int way = 0; way < 4; ++way) {
    object_.at(0) = way == 0 ? 0x05 : 0x0c;
    object_.at(16) = way == 1 ? 0x20000 : type_.address();
    type_name_[0] = way == 2 ? 'M' : 'm';
    thread_[1].at(264) = way == 3 ? 0x20001 : object_.address();
    EXPECT_TRUE(Read().waits.empty()) << way;
  }
}

TEST_F(RubyReaderTest, WhoWaitsForTheLockOfTheVmIsSaidToWaitForItsHolder) {
  List(ractor_.address(384), {thread_[1].address(104)});
  stack_.at(64) = 0;
  const ManagedFacts facts = Read();
  ASSERT_EQ(facts.waits.size(), 1u);
  EXPECT_EQ(facts.waits[0].kind, ManagedLockKind::kGil);
  EXPECT_EQ(facts.waits[0].waiter_tid, 8);
  EXPECT_EQ(facts.waits[0].owner_tid, 7);
  EXPECT_EQ(facts.waits[0].lock, "the GVL");
  EXPECT_EQ(ReadWaits(facts).size(), 1u);
  capture_.threads[1].call.reset();
  EXPECT_TRUE(Read().waits.empty()) << "it runs";
}

TEST_F(RubyReaderTest, AListThatEndsNowhereIsEmpty) {
  Store(ractor_.address(384), thread_[1].address(104));
  Store(thread_[1].address(104), thread_[1].address(104));
  EXPECT_TRUE(Read().waits.empty());
}

TEST_F(RubyReaderTest, AfterTheDeadlineNoMemoryIsRead) {
  const RubyOffsets& offsets = *OffsetsOfRuby(kVersion);
  EXPECT_TRUE(RubyObjects(memory_, offsets, std::numeric_limits<int64_t>::max()).ReadVmLock(ractor_.address()));
  EXPECT_FALSE(RubyObjects(memory_, offsets, MonotonicNs()).ReadVmLock(ractor_.address()));
}

TEST_F(RubyReaderTest, AVersionThatNobodyKnowsHasNoLocks) {
  thread_[1].at(264) = object_.address();
  for (ThreadCapture& thread : capture_.threads) {
    thread.traces[0].version = 30000;
    thread.traces[0].status = STACKD_WALK_UNKNOWN_VERSION;
  }
  const ManagedFacts facts = Read();
  EXPECT_TRUE(facts.waits.empty());
  EXPECT_NE(facts.runtimes.at(0).problem, "");
}

}  // namespace
}  // namespace stackd
