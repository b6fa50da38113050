extern "C" {
#include "agent/capture/capture.h"

#include "agent/maps/code_ranges.h"
}

#include <fcntl.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include "agent/tests/last_thread.h"
#include "daemon/ring/ring_reader.h"

namespace stackd {
namespace {

constexpr uint64_t kPage = 4096;

// Pages of memory to be a thread's stack, with nothing mapped around.
class Pages {
 public:
  explicit Pages(uint64_t pages) : bytes_(pages * kPage) {
    void* all = mmap(nullptr, bytes_ + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    base_ = reinterpret_cast<uint64_t>(all) + kPage;
    mprotect(reinterpret_cast<void*>(base_), bytes_, PROT_READ | PROT_WRITE);
    munmap(all, kPage);
    munmap(reinterpret_cast<void*>(base_ + bytes_), kPage);
  }
  ~Pages() { munmap(reinterpret_cast<void*>(base_), bytes_); }
  uint64_t base() const { return base_; }
  uint64_t end() const { return base_ + bytes_; }
  uint64_t* words() const { return reinterpret_cast<uint64_t*>(base_); }

 private:
  uint64_t bytes_;
  uint64_t base_;
};

class CaptureTest : public testing::Test {
 protected:
  CaptureTest() : ring_(std::move(*Ring::Create(1u << 20))) {
    EXPECT_TRUE(stackd_ring_attach(&agent_ring_, ring_->header(), ring_->size_bytes()));
  }

  void RefreshRanges() {
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    ASSERT_GE(stackd_code_ranges_refresh(fd), 0);
    close(fd);
  }

  // Captures as the handler would with `rsp`; nullopt if it was refused.
  std::optional<ThreadRecord> CaptureAt(uint64_t rsp, uint64_t thread_self = 0, uint32_t max_stack_bytes = 256u << 10) {
    stackd_capture capture{};
    capture.ring = &agent_ring_;
    capture.ranges = with_ranges_ ? stackd_code_ranges_current() : nullptr;
    capture.filter = stackd_filter_choose();
    capture.seq = 1;
    capture.tid = 77;
    capture.pid = getpid();
    capture.max_stack_bytes = max_stack_bytes;
    capture.thread_self = thread_self;
    capture.begin_ns = stackd_clock_ns(CLOCK_MONOTONIC);
    capture.alternate = alternate_;
    strcpy(capture.name, "victim");
    for (uint64_t i = 0; i < STACKD_REGISTERS; i++) capture.regs[i] = 0x1000 + i;
    capture.regs[STACKD_REG_RSP] = rsp;
    capture.regs[STACKD_REG_RIP] = 0x42;
    if (stackd_capture_write(&capture) != 0) return std::nullopt;
    LastThread listener;
    RingReader(ring_.get()).Drain(&listener);
    EXPECT_EQ(stackd_ring_free_slots(&agent_ring_), agent_ring_.live_slot_count);
    return listener.thread;
  }

  // The words of the record, 0 where they were filtered out.
  static std::vector<uint64_t> Unfiltered(const ThreadRecord& record) {
    std::vector<uint64_t> words(record.stack_words);
    size_t next = 0;
    for (size_t i = 0; i < words.size(); i++) {
      if ((record.masks[i / 64] >> (i % 64)) & 1) words[i] = record.words[next++];
    }
    EXPECT_EQ(next, record.words.size());
    return words;
  }

  std::unique_ptr<Ring> ring_;
  stackd_ring agent_ring_;
  stackd_interval alternate_{};
  bool with_ranges_ = true;
};

TEST_F(CaptureTest, TheCopyIsTheStackSeenThroughTheFilter) {
  Pages stack(16);
  std::mt19937_64 random(1);
  auto code = reinterpret_cast<uint64_t>(&stackd_capture_write);
  for (uint64_t i = 0; i < 16 * kPage / 8; i++) {
    const uint64_t kChoice[] = {random(), random() % 100000, code + random() % 100, stack.base() + random() % (16 * kPage),
                                0};
    stack.words()[i] = kChoice[random() % 5];
  }
  RefreshRanges();
  uint64_t rsp = stack.base() + 1000 * 8;
  auto record = CaptureAt(rsp);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->stack_base_avma, rsp - 128) << "the red zone is part of the stack";
  EXPECT_EQ(record->stack_words, (stack.end() - rsp + 128) / 8);
  stackd_filter filter;
  stackd_filter_init(&filter, stackd_code_ranges_current(), {record->stack_base_avma, stack.end()}, {});
  std::vector<uint64_t> words = Unfiltered(*record);
  const auto* memory = reinterpret_cast<const uint64_t*>(record->stack_base_avma);
  size_t kept = 0;
  for (size_t i = 0; i < words.size(); i++) {
    bool keep = stackd_filter_keeps(&filter, memory[i]);
    ASSERT_EQ(words[i], keep ? memory[i] : 0) << i;
    kept += keep;
  }
  EXPECT_GT(kept, words.size() / 4);
  EXPECT_EQ(record->name, "victim");
  EXPECT_EQ(record->registers[STACKD_REG_RIP], 0x42u) << "kept whatever it is";
  EXPECT_EQ(record->registers[0], 0u) << "0x1000 is no pointer";
}

TEST_F(CaptureTest, TheCopyEndsAtTheThreadDescriptor) {
  Pages stack(8);
  RefreshRanges();
  uint64_t self = stack.end() - 1024;
  auto record = CaptureAt(stack.base() + kPage, self);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->stack_base_avma + 8 * record->stack_words, self);
  EXPECT_EQ(record->flags & (STACKD_THREAD_FOREIGN_SP | STACKD_THREAD_TRUNCATED), 0u);
}

TEST_F(CaptureTest, AStackLongerThanAllowedIsCutAndSaysSo) {
  Pages stack(8);
  RefreshRanges();
  auto record = CaptureAt(stack.base() + 256, stack.end() - 64, 4096);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->stack_words, 512u);
  EXPECT_NE(record->flags & STACKD_THREAD_TRUNCATED, 0u);
}

TEST_F(CaptureTest, AnRspNearTheStartOfItsMappingHasNoRedZoneBelow) {
  Pages stack(2);
  RefreshRanges();
  auto record = CaptureAt(stack.base() + 16, stack.end() - 64);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->stack_base_avma, stack.base());
}

TEST_F(CaptureTest, AStackThatEndsAtTheEndOfItsMappingIsCopiedToTheEnd) {
  Pages stack(2);
  RefreshRanges();
  for (uint64_t below_end : {8, 16, 136, 512}) {
    auto record = CaptureAt(stack.end() - below_end);
    ASSERT_TRUE(record);
    EXPECT_EQ(record->stack_base_avma + 8 * record->stack_words, stack.end());
  }
}

TEST_F(CaptureTest, UnreadablePagesEndTheCopy) {
  Pages stack(16);
  RefreshRanges();
  // After the helper looked at maps.
  ASSERT_EQ(mprotect(reinterpret_cast<void*>(stack.base() + 5 * kPage), kPage, PROT_NONE), 0);
  auto record = CaptureAt(stack.base() + kPage);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->stack_base_avma + 8 * record->stack_words, stack.base() + 5 * kPage);
  EXPECT_EQ(record->flags & STACKD_THREAD_NO_STACK, 0u);

  record = CaptureAt(stack.base() + 5 * kPage + 512);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->stack_words, 0u);
  EXPECT_NE(record->flags & STACKD_THREAD_NO_STACK, 0u);
}

TEST_F(CaptureTest, AStackUnmappedSinceIsNoStack) {
  RefreshRanges();
  uint64_t gone;
  {
    Pages stack(4);
    RefreshRanges();
    gone = stack.base() + kPage;
  }
  auto record = CaptureAt(gone);
  ASSERT_TRUE(record);
  EXPECT_NE(record->flags & STACKD_THREAD_NO_STACK, 0u);
  EXPECT_EQ(record->registers[STACKD_REG_RSP], gone);
}

TEST_F(CaptureTest, AnyRspGivesARecord) {
  RefreshRanges();
  for (bool with_ranges : {true, false}) {
    with_ranges_ = with_ranges;
    for (uint64_t self : {uint64_t{0}, uint64_t{64}, ~uint64_t{0}, reinterpret_cast<uint64_t>(this)}) {
      for (uint64_t rsp : {uint64_t{0}, uint64_t{1}, uint64_t{127}, uint64_t{128}, uint64_t{4096}, ~uint64_t{0},
                           ~uint64_t{0} - 7, ~uint64_t{0} - 70000, uint64_t{1} << 47, (uint64_t{1} << 47) - 8,
                           uint64_t{1} << 63, reinterpret_cast<uint64_t>(&stackd_capture_write)}) {
        auto record = CaptureAt(rsp, self);
        ASSERT_TRUE(record) << std::hex << rsp;
        EXPECT_EQ(record->registers[STACKD_REG_RSP], rsp);
        EXPECT_EQ(record->registers[0], 0u) << "a small number passed as a pointer into a stack at " << std::hex << rsp;
      }
    }
  }
}

TEST_F(CaptureTest, AnRspInTheHeapIsForeignAndReadsNoFartherThanAllowed) {
  std::vector<uint64_t> heap(2 << 20, 0);
  RefreshRanges();
  auto rsp = reinterpret_cast<uint64_t>(&heap[1000]);
  for (auto& word : heap) word = rsp;
  auto record = CaptureAt(rsp);
  ASSERT_TRUE(record);
  EXPECT_NE(record->flags & STACKD_THREAD_FOREIGN_SP, 0u);
  EXPECT_EQ(record->stack_words, (256u << 10) / 8);
}

// The kernel may have joined the two: from glibc 2.42 on no mapping of a guard page lies between.
TEST_F(CaptureTest, AnAlternateStackEndsWhereItEndsAndTheThreadsOwnFollows) {
  Pages pages(16);
  const uint64_t own_base = pages.base() + 4 * kPage, self = pages.end() - 0x900;
  alternate_ = {pages.base(), own_base};
  const uint64_t interrupted_rsp = own_base + 6 * kPage;
  // What the signal frame on the alternate stack has saved.
  pages.words()[3 * kPage / 8] = interrupted_rsp;
  RefreshRanges();
  auto record = CaptureAt(pages.base() + 2 * kPage, self);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->stack_base_avma + 8 * record->stack_words, own_base);
  EXPECT_EQ(record->outer_base_avma, interrupted_rsp - 1024);
  EXPECT_EQ(record->outer_base_avma + 8 * record->outer_words, self);
}

TEST_F(CaptureTest, WithoutRoomForTheWholeRecordThereIsNone) {
  std::vector<uint64_t> heap(1 << 20, 0);
  RefreshRanges();
  auto rsp = reinterpret_cast<uint64_t>(&heap[0]);
  for (auto& word : heap) word = rsp;
  stackd_ring_writer writer;
  for (uint32_t i = 0; i + 20 < agent_ring_.live_slot_count; i++) {
    ASSERT_NE(stackd_ring_begin(&writer, &agent_ring_, STACKD_RECORD_STATUS, 8, 0), nullptr);
  }
  uint64_t dropped = ring_->header()->dropped[STACKD_DROP_NO_SLOT];
  EXPECT_FALSE(CaptureAt(rsp));
  EXPECT_EQ(stackd_ring_free_slots(&agent_ring_), 20u);
  EXPECT_EQ(ring_->header()->dropped[STACKD_DROP_NO_SLOT], dropped + 1);
}

// What stackd_capture_write_crash() wrote: read as a THREAD record of its own.
std::optional<ThreadRecord> TakeCrashThread(Ring* ring, uint32_t first_slot) {
  __atomic_fetch_or(&ring->header()->ready[first_slot / 64], 1ull << (first_slot % 64), __ATOMIC_RELEASE);
  LastThread listener;
  RingReader(ring).Drain(&listener);
  return listener.thread;
}

class CrashCaptureTest : public CaptureTest {
 protected:
  std::optional<ThreadRecord> CaptureCrash(const Pages& stack, uint64_t rsp, uint32_t slots) {
    stackd_capture capture{};
    capture.ring = &agent_ring_;
    capture.ranges = stackd_code_ranges_current();
    capture.filter = stackd_filter_choose();
    capture.tid = 77;
    capture.pid = getpid();
    capture.max_stack_bytes = 256u << 10;
    capture.thread_self = stack.end();
    capture.regs[STACKD_REG_RSP] = rsp;
    capture.crash_slots = slots;
    capture.stack = {stack.base(), stack.end()};
    uint32_t first_slot = STACKD_NO_SLOT;
    stackd_capture_write_crash(&capture, &first_slot);
    EXPECT_GE(first_slot, agent_ring_.live_slot_count);
    return TakeCrashThread(ring_.get(), first_slot);
  }
};

TEST_F(CrashCaptureTest, ADeepStackKeepsBothEnds) {
  Pages stack(256);
  RefreshRanges();
  for (uint64_t* word = stack.words(); word < stack.words() + 256 * kPage / 8; word++) {
    *word = reinterpret_cast<uint64_t>(word);
  }
  for (uint64_t rsp : {stack.base() + 512, stack.base() - 64}) {
    auto record = CaptureCrash(stack, rsp, 60);
    ASSERT_TRUE(record);
    EXPECT_EQ(record->flags, STACKD_THREAD_BOTH_ENDS);
    EXPECT_EQ(record->stack_base_avma, std::max(rsp - 128, stack.base()));
    EXPECT_GE(record->stack_words * 8u, 64u << 10);
    EXPECT_EQ(record->outer_words * 8u, STACKD_CRASH_OUTER_BYTES);
    EXPECT_EQ(record->outer_base_avma + 8 * record->outer_words, stack.end());
    ASSERT_EQ(record->words.size(), record->stack_words + record->outer_words);
    for (size_t i = 0; i < record->words.size(); i++) {
      bool inner = i < record->stack_words;
      ASSERT_EQ(record->words[i],
                inner ? record->stack_base_avma + 8 * i : record->outer_base_avma + 8 * (i - record->stack_words));
    }
    EXPECT_EQ(stackd_ring_free_crash_slots(&agent_ring_), agent_ring_.slot_count - agent_ring_.live_slot_count);
  }
}

TEST_F(CrashCaptureTest, AStackThatFitsIsWhole) {
  Pages stack(256);
  RefreshRanges();
  auto record = CaptureCrash(stack, stack.end() - (200u << 10), 60);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->flags, 0u) << "200 KiB of zeros need few slots";
  EXPECT_EQ(record->stack_base_avma + 8 * record->stack_words, stack.end());
}

TEST_F(CrashCaptureTest, SlotsThatRunOutCutTheStackAndSaySo) {
  Pages stack(64);
  RefreshRanges();
  for (uint64_t* word = stack.words(); word < stack.words() + 64 * kPage / 8; word++) *word = stack.end() - 8;
  for (uint32_t slots : {1u, 2u, 5u}) {
    auto record = CaptureCrash(stack, stack.base() + 512, slots);
    ASSERT_TRUE(record);
    EXPECT_EQ(record->flags, STACKD_THREAD_BOTH_ENDS | STACKD_THREAD_TRUNCATED) << slots;
    EXPECT_GT(record->words.size(), 0u);
  }
}

}  // namespace
}  // namespace stackd
