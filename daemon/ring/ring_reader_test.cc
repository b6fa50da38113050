#include "daemon/ring/ring_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <thread>

#include "daemon/base/clock.h"

extern "C" {
#include "agent/capture/capture.h"
#include "agent/ring/ring_writer.h"
#include "agent/runtimes/runtimes.h"
}

namespace stackd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint32_t kMaxStackWords = kMaxStackBytes / 8;

struct Records : RingReader::Listener {
  void OnThread(ThreadRecord record) override { threads.push_back(std::move(record)); }
  void OnStatus(StatusRecord record) override { statuses.push_back(std::move(record)); }
  void OnCrash(CrashRecord record) override { crashes.push_back(std::move(record)); }
  void OnWait(WaitRecord record) override { waits.push_back(record); }
  void OnSchedStats(SchedStatRecord record) override { sched_stats.push_back(record); }
  void OnCorrupt(const char* what) override { corrupt.emplace_back(what); }

  std::vector<ThreadRecord> threads;
  std::vector<CrashRecord> crashes;
  std::vector<StatusRecord> statuses;
  std::vector<WaitRecord> waits;
  std::vector<SchedStatRecord> sched_stats;
  std::vector<std::string> corrupt;
};

// A ring with the agent's writer on one side and the daemon's reader on the other.
class RingReaderTest : public testing::Test {
 protected:
  explicit RingReaderTest(uint32_t size_bytes = 1u << 20) {
    auto ring = Ring::Create(size_bytes);
    EXPECT_TRUE(ring.has_value());
    ring_ = std::move(*ring);
    memory_ = mmap(nullptr, ring_->size_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, ring_->fd(), 0);
    EXPECT_TRUE(stackd_ring_attach(&writer_ring_, memory_, ring_->size_bytes()));
    reader_ = std::make_unique<RingReader>(ring_.get());
  }
  ~RingReaderTest() override { munmap(memory_, ring_->size_bytes()); }

  stackd_ring_header* header() { return writer_ring_.header; }
  char* slot(uint32_t index) { return static_cast<char*>(stackd_slot(&writer_ring_, index)); }
  uint32_t free_slots() { return stackd_ring_free_slots(&writer_ring_); }

  // As the agent writes it: each mask followed by the words of its bits.
  void WriteThread(uint32_t tid, const std::vector<uint64_t>& masks, uint32_t stack_words) {
    stackd_ring_writer writer;
    auto* record = static_cast<stackd_thread_record*>(
        stackd_ring_begin(&writer, &writer_ring_, STACKD_RECORD_THREAD, sizeof(stackd_thread_record), tid));
    ASSERT_NE(record, nullptr);
    uint64_t value = tid * 1000;
    for (uint64_t mask : masks) {
      std::vector<uint64_t> block{mask};
      for (int i = 0; i < std::popcount(mask); i++) block.push_back(value++);
      ASSERT_TRUE(stackd_ring_append(&writer, block.data(), static_cast<uint32_t>(block.size())));
    }
    record->seq = 7;
    record->tid = tid;
    record->stack_words = stack_words;
    record->outer_words = 0;
    record->stack_base = 0x7000;
    strcpy(record->name, "worker");
    stackd_ring_commit(&writer);
  }

  // A record that no writer of ours would write: the bytes of one slot, made ready.
  template <typename Record>
  void Forge(uint32_t index, const Record& record) {
    memcpy(slot(index), &record, sizeof(record));
    MakeReady(index);
  }
  void MakeReady(uint32_t index) { header()->ready[index / 64] |= 1ull << (index % 64); }

  Records Drain() {
    Records records;
    reader_->Drain(&records);
    return records;
  }

  std::unique_ptr<Ring> ring_;
  void* memory_ = nullptr;
  stackd_ring writer_ring_{};
  std::unique_ptr<RingReader> reader_;
};

stackd_thread_record ThreadInOneSlot() {
  stackd_thread_record record{};
  record.slot = {STACKD_NO_SLOT, STACKD_RECORD_THREAD};
  return record;
}

TEST_F(RingReaderTest, GivesWhatTheAgentWrote) {
  WriteThread(5, {0b1011, 0}, 100);
  Records records = Drain();
  ASSERT_EQ(records.threads.size(), 1u);
  const ThreadRecord& thread = records.threads[0];
  EXPECT_EQ(thread.seq, 7u);
  EXPECT_EQ(thread.tid, 5u);
  EXPECT_EQ(thread.name, "worker");
  EXPECT_EQ(thread.stack_base_avma, 0x7000u);
  EXPECT_EQ(thread.stack_words, 100u);
  EXPECT_THAT(thread.masks, ElementsAre(0b1011, 0));
  EXPECT_THAT(thread.words, ElementsAre(5000, 5001, 5002));
  EXPECT_THAT(records.corrupt, IsEmpty());
  EXPECT_THAT(Drain().threads, IsEmpty()) << "a record is given once";
}

TEST_F(RingReaderTest, TakesARealCaptureOfThisThread) {
  uint64_t stack[512];
  for (uint64_t& word : stack) word = reinterpret_cast<uint64_t>(&word);
  stackd_capture capture{};
  capture.ring = &writer_ring_;
  capture.filter = stackd_filter_scalar;
  capture.seq = 3;
  capture.tid = static_cast<uint32_t>(gettid());
  capture.pid = getpid();
  capture.max_stack_bytes = sizeof(stack);
  capture.regs[STACKD_REG_RSP] = reinterpret_cast<uint64_t>(stack) + 128;
  ASSERT_EQ(stackd_capture_write(&capture), 0);
  Records records = Drain();
  ASSERT_EQ(records.threads.size(), 1u);
  EXPECT_EQ(records.threads[0].stack_base_avma, reinterpret_cast<uint64_t>(stack));
  EXPECT_EQ(records.threads[0].words, std::vector<uint64_t>(std::begin(stack), std::end(stack)));
}

TEST_F(RingReaderTest, TheLongestStackIsNotCorrupt) {
  WriteThread(1, std::vector<uint64_t>(kMaxStackWords / 64, ~0ull), kMaxStackWords);
  Records records = Drain();
  ASSERT_EQ(records.threads.size(), 1u);
  EXPECT_EQ(records.threads[0].words.size(), kMaxStackWords);
}

TEST_F(RingReaderTest, AllSlotsAreFreeAgainAfterwards) {
  uint32_t before = free_slots();
  for (int round = 0; round < 20; round++) {
    for (uint32_t tid = 1; tid <= 10; tid++) WriteThread(tid, std::vector<uint64_t>(tid * 8, ~0ull), tid * 512);
    EXPECT_LT(free_slots(), before);
    EXPECT_EQ(Drain().threads.size(), 10u);
    ASSERT_EQ(free_slots(), before);
  }
}

TEST_F(RingReaderTest, AStalledWriterKeepsItsSlotsAndDelaysNobody) {
  uint32_t before = free_slots();
  stackd_ring_writer stalled;
  ASSERT_NE(stackd_ring_begin(&stalled, &writer_ring_, STACKD_RECORD_THREAD, sizeof(stackd_thread_record), 0), nullptr);
  std::vector<uint64_t> words(1000, 1);
  ASSERT_TRUE(stackd_ring_append(&stalled, words.data(), 1000));
  uint32_t held = before - free_slots();
  for (uint32_t tid = 1; tid <= 2 * before; tid++) {
    WriteThread(tid, {}, 0);
    ASSERT_EQ(Drain().threads.size(), 1u);
    ASSERT_EQ(free_slots(), before - held);
  }
}

TEST_F(RingReaderTest, WritersOnManyThreadsLoseNothingAndTearNothing) {
  constexpr uint32_t kWriters = 4, kEach = 2000;
  std::atomic<uint32_t> written{0};
  std::vector<std::thread> writers;
  for (uint32_t w = 0; w < kWriters; w++) {
    writers.emplace_back([&, w] {
      for (uint32_t n = 0; n < kEach;) {
        stackd_ring_writer writer;
        auto* record = static_cast<stackd_thread_record*>(
            stackd_ring_begin(&writer, &writer_ring_, STACKD_RECORD_THREAD, sizeof(stackd_thread_record), w));
        if (record == nullptr) {
          std::this_thread::yield();
          continue;
        }
        uint64_t id = uint64_t{w} << 32 | n;
        std::vector<uint64_t> block(65, id);
        block[0] = ~0ull;
        bool room = true;
        for (int i = 0; i < 10 && room; i++) room = stackd_ring_append(&writer, block.data(), 65);
        if (!room) {
          stackd_ring_abandon(&writer);
          std::this_thread::yield();
          continue;
        }
        record->tid = w;
        record->seq = n++;
        record->stack_base = id;
        record->stack_words = 640;
        record->outer_words = 0;
        stackd_ring_commit(&writer);
        written++;
      }
    });
  }
  std::vector<uint32_t> next(kWriters, 0);
  std::vector<std::vector<bool>> seen(kWriters, std::vector<bool>(kEach));
  size_t got = 0;
  int64_t give_up_ns = MonotonicNs() + 60 * kNsPerSecond;
  while (got < kWriters * kEach && MonotonicNs() < give_up_ns) {
    Records records = Drain();
    ASSERT_THAT(records.corrupt, IsEmpty());
    for (const ThreadRecord& record : records.threads) {
      ASSERT_EQ(record.words, std::vector<uint64_t>(640, record.stack_base_avma));
      ASSERT_FALSE(seen[record.tid][record.seq]);
      seen[record.tid][record.seq] = true;
      got++;
    }
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(got, kWriters * kEach);
}

TEST_F(RingReaderTest, GivesStatuses) {
  stackd_status_record record{};
  record.slot = {STACKD_NO_SLOT, STACKD_RECORD_STATUS};
  record.seq = 4;
  record.entry_count = STACKD_STATUS_ENTRIES;
  for (uint32_t i = 0; i < STACKD_STATUS_ENTRIES; i++) {
    record.entries[i] = {
        .tid = i, .status = STACKD_STATUS_UNINTERRUPTIBLE, .state = 'D', .pad = 0, .name = "io", .wait_channel = "nfs"};
  }
  Forge(0, record);
  Records records = Drain();
  ASSERT_EQ(records.statuses.size(), STACKD_STATUS_ENTRIES);
  EXPECT_EQ(records.statuses[35].tid, 35u);
  EXPECT_EQ(records.statuses[35].seq, 4u);
  EXPECT_EQ(records.statuses[35].status, STACKD_STATUS_UNINTERRUPTIBLE);
  EXPECT_EQ(records.statuses[35].kernel_state, 'D');
  EXPECT_EQ(records.statuses[35].name, "io");
  EXPECT_EQ(records.statuses[35].wait_channel, "nfs");
}

TEST_F(RingReaderTest, AStatusOutOfRangeIsCorruptAndItsNeighboursAreNot) {
  stackd_status_record record{};
  record.slot = {STACKD_NO_SLOT, STACKD_RECORD_STATUS};
  record.entry_count = 4;
  uint8_t statuses[] = {1, STACKD_STATUS_SIGNAL_BLOCKED, 11, STACKD_STATUS_RUNNING};
  for (uint32_t i = 0; i < 4; i++) record.entries[i].status = statuses[i];
  Forge(0, record);
  Records records = Drain();
  EXPECT_EQ(records.statuses.size(), 2u);
  EXPECT_EQ(records.corrupt.size(), 2u);
}

TEST_F(RingReaderTest, MoreStatusesThanASlotHoldsAreCorrupt) {
  for (uint32_t count : {STACKD_STATUS_ENTRIES + 1u, 0xffffffffu}) {
    stackd_status_record record{};
    record.slot = {STACKD_NO_SLOT, STACKD_RECORD_STATUS};
    record.entry_count = count;
    Forge(0, record);
    Records records = Drain();
    EXPECT_THAT(records.statuses, IsEmpty());
    EXPECT_THAT(records.corrupt, ElementsAre("a status record with too many entries"));
  }
}

TEST_F(RingReaderTest, GivesTheSystemCallOfAThreadWithTheArgumentsThatAreKnown) {
  stackd_thread_record record = ThreadInOneSlot();
  record.syscall = {.number = SYS_poll, .known = STACKD_SYSCALL_KNOWN | 0b11, .arguments = {0x7000, 3, 99, 99, 99, 99}};
  Forge(0, record);
  Records records = Drain();
  ASSERT_EQ(records.threads.size(), 1u);
  ASSERT_TRUE(records.threads[0].call.has_value());
  EXPECT_EQ(records.threads[0].call->number, static_cast<uint32_t>(SYS_poll));
  EXPECT_EQ(records.threads[0].call->known_arguments, 0b11u) << "no bit beyond the arguments";
  EXPECT_THAT(records.threads[0].call->arguments, ElementsAre(0x7000, 3, 0, 0, 0, 0)) << "what is not known is not kept";
}

TEST_F(RingReaderTest, AThreadOutsideAnySystemCallHasNone) {
  stackd_thread_record record = ThreadInOneSlot();
  record.syscall = {.number = SYS_poll, .known = 0b11, .arguments = {0x7000, 3}};
  Forge(0, record);
  Records records = Drain();
  ASSERT_EQ(records.threads.size(), 1u);
  EXPECT_FALSE(records.threads[0].call.has_value());
}

stackd_wait_record Waits(uint32_t entry_count) {
  stackd_wait_record record{};
  record.slot = {STACKD_NO_SLOT, STACKD_RECORD_WAIT};
  record.seq = 7;
  record.entry_count = entry_count;
  return record;
}

TEST_F(RingReaderTest, GivesWaits) {
  stackd_wait_record record = Waits(STACKD_WAIT_ENTRIES);
  record.entries[0] = {.tid = 11, .rsp = 0x7fff0000, .rip = 0x401000};
  record.entries[0].syscall = {.number = SYS_futex, .known = STACKD_SYSCALL_KNOWN | 1, .arguments = {0x601000, 5}};
  record.entries[24].tid = 12;
  Forge(0, record);
  Records records = Drain();
  ASSERT_EQ(records.waits.size(), size_t{STACKD_WAIT_ENTRIES});
  const WaitRecord& first = records.waits[0];
  EXPECT_EQ(first.seq, 7u);
  EXPECT_EQ(first.tid, 11u);
  EXPECT_EQ(first.rsp_avma, 0x7fff0000u);
  EXPECT_EQ(first.rip_avma, 0x401000u);
  ASSERT_TRUE(first.call.has_value());
  EXPECT_EQ(first.call->number, static_cast<uint32_t>(SYS_futex));
  EXPECT_THAT(first.call->arguments, ElementsAre(0x601000, 0, 0, 0, 0, 0));
  EXPECT_EQ(records.waits[24].tid, 12u);
  EXPECT_FALSE(records.waits[24].call.has_value());
}

TEST_F(RingReaderTest, MoreWaitsThanASlotHoldsAreCorrupt) {
  for (uint32_t count : {STACKD_WAIT_ENTRIES + 1u, ~0u}) {
    Forge(0, Waits(count));
    Records records = Drain();
    EXPECT_THAT(records.waits, IsEmpty());
    EXPECT_EQ(records.corrupt.size(), 1u) << count;
  }
}

stackd_schedstat_record SchedStats(uint32_t entry_count) {
  stackd_schedstat_record record{};
  record.slot = {STACKD_NO_SLOT, STACKD_RECORD_SCHEDSTAT};
  record.seq = 7;
  record.entry_count = entry_count;
  return record;
}

TEST_F(RingReaderTest, GivesSchedStats) {
  stackd_schedstat_record record = SchedStats(STACKD_SCHEDSTAT_ENTRIES);
  record.entries[0] = {.tid = 11, .run_ns = 5, .runnable_ns = 6, .run_count = 7};
  record.entries[62] = {.tid = 12, .is_helper = 1, .run_ns = ~0ull, .runnable_ns = ~0ull, .run_count = ~0ull};
  Forge(0, record);
  Records records = Drain();
  ASSERT_EQ(records.sched_stats.size(), size_t{STACKD_SCHEDSTAT_ENTRIES});
  const SchedStatRecord& first = records.sched_stats[0];
  EXPECT_EQ(first.seq, 7u);
  EXPECT_EQ(first.tid, 11u);
  EXPECT_EQ(first.run_ns, 5);
  EXPECT_EQ(first.runnable_ns, 6);
  EXPECT_EQ(first.run_count, 7u);
  EXPECT_FALSE(first.is_helper);
  EXPECT_TRUE(records.sched_stats[62].is_helper);
  EXPECT_EQ(records.sched_stats[62].run_ns, INT64_MAX) << "no time before the start";
  EXPECT_EQ(records.sched_stats[62].runnable_ns, INT64_MAX);
}

TEST_F(RingReaderTest, MoreSchedStatsThanASlotHoldsAreCorrupt) {
  for (uint32_t count : {STACKD_SCHEDSTAT_ENTRIES + 1u, ~0u}) {
    Forge(0, SchedStats(count));
    Records records = Drain();
    EXPECT_THAT(records.sched_stats, IsEmpty());
    EXPECT_EQ(records.corrupt.size(), 1u) << count;
  }
}

TEST_F(RingReaderTest, TextOfTheProcessBecomesUtf8AndItsStateALetter) {
  stackd_status_record record{};
  record.slot = {STACKD_NO_SLOT, STACKD_RECORD_STATUS};
  record.entry_count = 1;
  record.entries[0].status = STACKD_STATUS_EXITED;
  record.entries[0].state = '\xff';
  memset(record.entries[0].name, 0xff, sizeof(record.entries[0].name));
  Forge(0, record);
  stackd_thread_record thread = ThreadInOneSlot();
  memset(thread.name, 0xc3, sizeof(thread.name));
  Forge(1, thread);
  Records records = Drain();
  ASSERT_EQ(records.statuses.size(), 1u);
  EXPECT_EQ(records.statuses[0].kernel_state, 0);
  EXPECT_EQ(records.statuses[0].name, std::string(16, '?'));
  ASSERT_EQ(records.threads.size(), 1u);
  EXPECT_EQ(records.threads[0].name, std::string(16, '?'));
}

TEST_F(RingReaderTest, TimesBeyondTheClockDoNotBecomeNegative) {
  stackd_thread_record thread = ThreadInOneSlot();
  thread.time_ns = thread.cpu_ns = ~0ull;
  thread.handler_ns = ~0u;
  Forge(0, thread);
  Records records = Drain();
  ASSERT_EQ(records.threads.size(), 1u);
  EXPECT_EQ(records.threads[0].time_ns, INT64_MAX);
  EXPECT_EQ(records.threads[0].cpu_ns, INT64_MAX);
  EXPECT_EQ(records.threads[0].handler_ns, 0xffffffffll);
}

TEST_F(RingReaderTest, AChainThatReturnsToItselfEnds) {
  stackd_thread_record record = ThreadInOneSlot();
  record.slot.next = 3;
  Forge(3, record);
  EXPECT_THAT(Drain().corrupt, ElementsAre("a chain of slots that does not end"));
  // Over a second slot.
  record.slot.next = 9;
  Forge(3, record);
  stackd_slot_header back{3, 0};
  memcpy(slot(9), &back, sizeof(back));
  EXPECT_THAT(Drain().corrupt, ElementsAre("a chain of slots that does not end"));
}

TEST_F(RingReaderTest, AChainThatLeavesTheRingIsCorrupt) {
  for (uint32_t next : {ring_->slot_count(), 0x7fffffffu, 0xfffffffeu}) {
    stackd_thread_record record = ThreadInOneSlot();
    record.slot.next = next;
    Forge(0, record);
    EXPECT_THAT(Drain().corrupt, ElementsAre("a chain of slots that does not end")) << next;
  }
}

TEST_F(RingReaderTest, AReadyBitBeyondTheLastSlotIsIgnored) {
  ASSERT_NE(ring_->slot_count() % 64, 0u);
  MakeReady(ring_->slot_count());
  header()->ready[STACKD_BITMAP_WORDS - 1] = ~0ull;
  Records records = Drain();
  EXPECT_THAT(records.threads, IsEmpty());
  EXPECT_THAT(records.corrupt, IsEmpty());
}

TEST_F(RingReaderTest, StackSizesThatDisagreeAreCorrupt) {
  const char* const corruption = "a thread record whose sizes disagree";
  auto payload = [&](uint32_t index) { return reinterpret_cast<uint64_t*>(slot(index) + sizeof(stackd_thread_record)); };
  stackd_thread_record record = ThreadInOneSlot();

  record.stack_words = kMaxStackWords + 1;
  Forge(0, record);
  EXPECT_THAT(Drain().corrupt, ElementsAre(corruption)) << "longer than any stack";

  record.stack_words = 0xffffffff;
  Forge(0, record);
  EXPECT_THAT(Drain().corrupt, ElementsAre(corruption)) << "arithmetic on it would overflow";

  record.stack_words = 3;
  Forge(0, record);
  payload(0)[0] = 0b1001;
  EXPECT_THAT(Drain().corrupt, ElementsAre(corruption)) << "a mask bit beyond the last word";

  constexpr uint32_t kWordsInSlot = (STACKD_SLOT_BYTES - sizeof(stackd_thread_record)) / 8;
  record.stack_words = 64 * 5;
  Forge(0, record);
  for (uint32_t i = 0; i < kWordsInSlot; i++) payload(0)[i] = ~0ull;
  EXPECT_THAT(Drain().corrupt, ElementsAre(corruption)) << "kept words that are not there";

  record.stack_words = 64 * (kWordsInSlot + 1);
  Forge(0, record);
  for (uint32_t i = 0; i < kWordsInSlot; i++) payload(0)[i] = 0;
  EXPECT_THAT(Drain().corrupt, ElementsAre(corruption)) << "masks that are not there";
}

// --- What runtimes say ---

const unsigned char kFunction[] = "work", kFile[] = "/srv/app.py";

// As a walker of the agent's does it, of this thread.
uint32_t WriteManaged(stackd_ring_writer* ring, int frames) {
  const std::array<uint64_t, STACKD_REGISTERS> registers{};
  const stackd_managed_thread thread{
      .pid = getpid(), .tid = 5, .thread_self = 0, .regs = registers.data(), .stack_start = 0, .stack_end = 0};
  stackd_managed_writer writer{.ring = ring, .words_left = STACKD_MAX_MANAGED_WORDS, .full = false, .words = 0};
  stackd_managed_begin(&writer, STACKD_RUNTIME_CPYTHON, 0, STACKD_WALK_WHOLE, 0x030b07f0, 1);
  for (int i = 0; i < frames; i++) stackd_managed_frame(&writer, 0, 0, static_cast<uint64_t>(i), i);
  const stackd_managed_symbol_source symbol{.key = 0,
                                            .first_line = 3,
                                            .table_format = 0,
                                            .function = {reinterpret_cast<uintptr_t>(kFunction), 4},
                                            .file = {reinterpret_cast<uintptr_t>(kFile), 11},
                                            .table = {0x10, 5}};  // cannot be read
  stackd_managed_symbol(&writer, &thread, &symbol, nullptr);
  return writer.words;
}

TEST_F(RingReaderTest, GivesWhatAWalkerWroteBehindTheStack) {
  for (int frames : {0, 1, 1000}) {
    stackd_ring_writer writer;
    auto* record = static_cast<stackd_thread_record*>(
        stackd_ring_begin(&writer, &writer_ring_, STACKD_RECORD_THREAD, sizeof(stackd_thread_record), 5));
    ASSERT_NE(record, nullptr);
    *record = {.slot = record->slot, .seq = 7, .tid = 5, .stack_words = 1};
    const uint64_t stack[] = {1, 0x7000};
    ASSERT_TRUE(stackd_ring_append(&writer, stack, 2));
    record->managed_words = WriteManaged(&writer, frames);
    stackd_ring_commit(&writer);
    Records records = Drain();
    EXPECT_THAT(records.corrupt, IsEmpty());
    ASSERT_EQ(records.threads.size(), 1u);
    EXPECT_THAT(records.threads[0].words, ElementsAre(0x7000));
    ASSERT_EQ(records.threads[0].managed.size(), 1u);
    const ManagedTrace& trace = records.threads[0].managed[0];
    ASSERT_EQ(trace.frames.size(), static_cast<size_t>(frames));
    for (size_t i = 0; i < trace.frames.size(); i++) ASSERT_EQ(trace.frames[i].key, i);
    ASSERT_EQ(trace.symbols.size(), 1u);
    EXPECT_EQ(trace.symbols[0].function, "work");
    EXPECT_EQ(trace.symbols[0].file, "/srv/app.py");
    EXPECT_EQ(trace.symbols[0].table, std::string(5, 0));
  }
}

TEST_F(RingReaderTest, MoreOfARuntimeThanThereIsRoomForIsCorrupt) {
  for (uint32_t words : {1u << 11, STACKD_MAX_MANAGED_WORDS + 1, 0xffffffffu}) {
    stackd_thread_record record = ThreadInOneSlot();
    record.managed_words = words;
    Forge(0, record);
    EXPECT_THAT(Drain().corrupt, ElementsAre("a thread record whose sizes disagree")) << words;
  }
}

// --- Crashes ---

class CrashRecordTest : public RingReaderTest {
 protected:
  // In the first two slots: a crash of thread 9 and its thread with a stack of two words.
  void WriteCrash(uint32_t at = 0, uint64_t time_ns = 1000) {
    stackd_crash_record crash{};
    crash.slot = {at + 1, STACKD_RECORD_CRASH};
    crash.id[0] = 11;
    crash.id[1] = 22;
    crash.time_ns = time_ns;
    crash.tid = 9;
    crash.signal_number = 7;
    crash.fault_address = 0x1234;
    strcpy(crash.abort_message, "free(): invalid pointer");
    strcpy(crash.exception_type, "St9exception");
    memcpy(slot(at), &crash, sizeof(crash));
    stackd_thread_record thread = ThreadInOneSlot();
    thread.tid = 9;
    thread.flags = STACKD_THREAD_BOTH_ENDS;
    thread.stack_words = 2;
    thread.outer_base = 0x9000;
    thread.outer_words = 1;
    memcpy(slot(at + 1), &thread, sizeof(thread));
    uint64_t payload[] = {3, 100, 101, 1, 102};
    memcpy(slot(at + 1) + sizeof(thread), payload, sizeof(payload));
  }
  Records TakeTentative(int64_t now_ns) {
    Records records;
    reader_->TakeTentative(now_ns, &records);
    return records;
  }
};

TEST_F(CrashRecordTest, IsGivenWithItsThread) {
  WriteCrash();
  MakeReady(0);
  uint32_t free_before = free_slots();
  Records records = Drain();
  ASSERT_EQ(records.crashes.size(), 1u);
  const CrashRecord& crash = records.crashes[0];
  EXPECT_THAT(crash.id, ElementsAre(11, 22));
  EXPECT_EQ(crash.tid, 9u);
  EXPECT_EQ(crash.signal_number, 7);
  EXPECT_EQ(crash.fault_address_avma, 0x1234u);
  EXPECT_EQ(crash.abort_message, "free(): invalid pointer");
  EXPECT_EQ(crash.exception_type, "St9exception");
  ASSERT_TRUE(crash.thread.has_value());
  EXPECT_EQ(crash.thread->tid, 9u);
  EXPECT_EQ(crash.thread->stack_words, 2u);
  EXPECT_EQ(crash.thread->outer_base_avma, 0x9000u);
  EXPECT_EQ(crash.thread->outer_words, 1u);
  EXPECT_THAT(crash.thread->masks, ElementsAre(3, 1));
  EXPECT_THAT(crash.thread->words, ElementsAre(100, 101, 102));
  EXPECT_THAT(records.corrupt, IsEmpty());
  EXPECT_EQ(free_slots(), free_before) << "these slots were free before, which a hostile process may say";
}

TEST_F(CrashRecordTest, WithoutAThreadIsGivenAndSaidToBeCorrupt) {
  WriteCrash();
  reinterpret_cast<stackd_slot_header*>(slot(0))->next = STACKD_NO_SLOT;
  MakeReady(0);
  Records records = Drain();
  ASSERT_EQ(records.crashes.size(), 1u);
  EXPECT_FALSE(records.crashes[0].thread.has_value());
  EXPECT_EQ(records.corrupt.size(), 1u);
}

TEST_F(CrashRecordTest, WhoseThreadLiesAboutItsSizeIsGivenWithoutIt) {
  WriteCrash();
  reinterpret_cast<stackd_thread_record*>(slot(1))->stack_words = 100'000;
  MakeReady(0);
  Records records = Drain();
  ASSERT_EQ(records.crashes.size(), 1u);
  EXPECT_FALSE(records.crashes[0].thread.has_value());
}

TEST_F(CrashRecordTest, TextThatIsNotTerminatedOrNotUtf8IsMadeSo) {
  WriteCrash();
  auto* crash = reinterpret_cast<stackd_crash_record*>(slot(0));
  memset(crash->abort_message, 0xff, sizeof(crash->abort_message));
  MakeReady(0);
  Records records = Drain();
  ASSERT_EQ(records.crashes.size(), 1u);
  EXPECT_EQ(records.crashes[0].abort_message, std::string(STACKD_CRASH_TEXT_BYTES, '?'));
}

TEST_F(CrashRecordTest, TentativeIsTakenOnDemandOnly) {
  WriteCrash();
  header()->tentative[3] = 1 + 0;
  EXPECT_THAT(Drain().crashes, IsEmpty());
  EXPECT_EQ(TakeTentative(2000).crashes.size(), 1u);
  EXPECT_THAT(TakeTentative(2000).crashes, IsEmpty());
}

TEST_F(CrashRecordTest, TentativeThatIsTooOldIsLeftAndOneOfTheFutureIsOfNow) {
  constexpr int64_t kAge = static_cast<int64_t>(STACKD_TENTATIVE_NS);
  WriteCrash(0, 1000);
  header()->tentative[0] = 1;
  EXPECT_THAT(TakeTentative(1001 + kAge).crashes, IsEmpty());
  header()->tentative[0] = 1;
  EXPECT_EQ(TakeTentative(1000 + kAge).crashes.size(), 1u);
  WriteCrash(0, ~0ull);
  header()->tentative[0] = 1;
  EXPECT_EQ(TakeTentative(5).crashes.size(), 1u);
}

TEST_F(CrashRecordTest, TentativeThatIsNoCrashOrOutsideTheRingIsCorrupt) {
  stackd_thread_record thread = ThreadInOneSlot();
  memcpy(slot(0), &thread, sizeof(thread));
  header()->tentative[0] = 1;
  header()->tentative[1] = STACKD_MAX_SLOTS + 5;
  header()->tentative[2] = 0xffffffff;
  Records records = TakeTentative(1000);
  EXPECT_THAT(records.crashes, IsEmpty());
  EXPECT_THAT(records.threads, IsEmpty());
  EXPECT_EQ(records.corrupt.size(), 3u);
}

TEST_F(RingReaderTest, UnknownKindsAreCorrupt) {
  for (uint32_t kind : {0u, 6u, 0xffffffffu}) {
    stackd_thread_record record = ThreadInOneSlot();
    record.slot.kind = kind;
    Forge(0, record);
    EXPECT_THAT(Drain().corrupt, ElementsAre("a record of unknown kind"));
  }
}

TEST_F(RingReaderTest, SlotsOfCorruptRecordsAreFreeAgain) {
  uint32_t before = free_slots();
  stackd_ring_writer writer;
  ASSERT_NE(stackd_ring_begin(&writer, &writer_ring_, 77, 8, 0), nullptr);
  std::vector<uint64_t> words(5000, ~0ull);
  ASSERT_TRUE(stackd_ring_append(&writer, words.data(), 5000));
  stackd_ring_commit(&writer);
  EXPECT_EQ(Drain().corrupt.size(), 1u);
  EXPECT_EQ(free_slots(), before);
}

TEST_F(RingReaderTest, GoodRecordsBesideCorruptOnesAreGiven) {
  stackd_thread_record record = ThreadInOneSlot();
  record.slot.kind = 9;
  Forge(400, record);
  WriteThread(1, {1}, 1);
  Records records = Drain();
  EXPECT_EQ(records.threads.size(), 1u);
  EXPECT_EQ(records.corrupt.size(), 1u);
}

class LargeRingReaderTest : public RingReaderTest {
 protected:
  LargeRingReaderTest() : RingReaderTest(STACKD_HEADER_BYTES + STACKD_MAX_SLOTS * STACKD_SLOT_BYTES) {}
};

TEST_F(LargeRingReaderTest, ChainsThatShareSlotsDoNotMultiplyTheWork) {
  for (uint32_t i = 0; i < STACKD_MAX_SLOTS; i++) {
    stackd_slot_header next{(i + 1) % STACKD_MAX_SLOTS, STACKD_RECORD_THREAD};
    memcpy(slot(i), &next, sizeof(next));
    MakeReady(i);
  }
  // Each chain is cut after some 132 slots: all of them would be 132 times the ring.
  int records = 0;
  int rounds = 0;
  for (int got; (got =
                     [&] {
                       Records r;
                       return reader_->Drain(&r);
                     }()) > 0;
       rounds++) {
    EXPECT_LE(got, 2 * int{STACKD_MAX_SLOTS} / 100 + 64);
    records += got;
  }
  EXPECT_EQ(records, int{STACKD_MAX_SLOTS});
  EXPECT_GT(rounds, 30);
}

TEST_F(LargeRingReaderTest, OneDrainTakesAFullRing) {
  uint32_t count = free_slots();
  for (uint32_t tid = 0; tid < count; tid++) WriteThread(tid, {}, 0);
  EXPECT_EQ(free_slots(), 0u);
  EXPECT_EQ(Drain().threads.size(), count);
}

TEST_F(RingReaderTest, AProcessThatScribblesWhileWeReadHarmsOnlyItsRecords) {
  std::atomic<bool> stop{false};
  std::thread scribbler([&] {
    uint64_t random = 88172645463325252ull;
    auto* words = reinterpret_cast<volatile uint32_t*>(memory_);
    while (!stop) {
      random ^= random << 13, random ^= random >> 7, random ^= random << 17;
      uint32_t index = static_cast<uint32_t>(random) % ring_->slot_count();
      uint32_t at = (STACKD_HEADER_BYTES + index * STACKD_SLOT_BYTES) / 4;
      words[at] = random % 3 == 0 ? STACKD_NO_SLOT : static_cast<uint32_t>(random >> 32) % (ring_->slot_count() + 1);
      words[at + 1] = static_cast<uint32_t>(random >> 40) % 4;
      words[at + offsetof(stackd_thread_record, stack_words) / 4] = static_cast<uint32_t>(random >> 20) % 1000;
      header()->ready[index / 64] = random;
      header()->reader_sleeping = static_cast<uint32_t>(random);
    }
  });
  int64_t until_ns = MonotonicNs() + kNsPerSecond / 2;
  int64_t records = 0;
  while (MonotonicNs() < until_ns) {
    Records got;
    records += reader_->Drain(&got);
    for (const ThreadRecord& thread : got.threads) {
      int64_t kept = 0;
      for (uint64_t mask : thread.masks) kept += std::popcount(mask);
      ASSERT_EQ(kept, static_cast<int64_t>(thread.words.size()));
      ASSERT_EQ(thread.masks.size(), (thread.stack_words + 63) / 64);
    }
  }
  stop = true;
  scribbler.join();
  EXPECT_GT(records, 0);
}

TEST_F(RingReaderTest, WaitEndsWhenTheAgentRings) {
  uint32_t seen = reader_->Doorbell();
  std::thread agent([&] {
    while (__atomic_load_n(&header()->reader_sleeping, __ATOMIC_SEQ_CST) == 0) std::this_thread::yield();
    stackd_ring_doorbell(&writer_ring_);
  });
  int64_t begin_ns = MonotonicNs();
  reader_->Wait(seen, 20 * kNsPerSecond);
  EXPECT_LT(MonotonicNs() - begin_ns, 10 * kNsPerSecond);
  agent.join();
}

TEST_F(RingReaderTest, WaitEndsAtOnceIfTheAgentRangSinceWeLooked) {
  uint32_t seen = reader_->Doorbell();
  stackd_ring_doorbell(&writer_ring_);
  int64_t begin_ns = MonotonicNs();
  reader_->Wait(seen, 20 * kNsPerSecond);
  EXPECT_LT(MonotonicNs() - begin_ns, 10 * kNsPerSecond);
}

TEST_F(RingReaderTest, WaitEndsByItself) {
  reader_->Wait(reader_->Doorbell(), 5 * kNsPerMs);
  EXPECT_EQ(header()->reader_sleeping, 0u);
}

TEST_F(RingReaderTest, InterruptEndsAWait) {
  uint32_t seen = reader_->Doorbell();
  std::thread other([&] {
    while (__atomic_load_n(&header()->reader_sleeping, __ATOMIC_SEQ_CST) == 0) std::this_thread::yield();
    RingReader(ring_.get()).Interrupt();
  });
  int64_t begin_ns = MonotonicNs();
  reader_->Wait(seen, 20 * kNsPerSecond);
  EXPECT_LT(MonotonicNs() - begin_ns, 10 * kNsPerSecond);
  other.join();
}

TEST(Ring, SizesOutsideTheAbiAreRefused) {
  for (uint32_t bytes : {0u, (64u << 10) - 1, STACKD_HEADER_BYTES + STACKD_MAX_SLOTS * STACKD_SLOT_BYTES + 1, ~0u}) {
    auto ring = Ring::Create(bytes);
    ASSERT_FALSE(ring.has_value()) << bytes;
    EXPECT_EQ(ring.error().code, Code::kInvalidArgument);
  }
  EXPECT_TRUE(Ring::Create(64u << 10).has_value());
  EXPECT_TRUE(Ring::Create(STACKD_HEADER_BYTES + STACKD_MAX_SLOTS * STACKD_SLOT_BYTES).has_value());
}

TEST(Ring, CannotBeCutShortAndHasAllItsPages) {
  auto ring = Ring::Create(1u << 20);
  ASSERT_TRUE(ring.has_value());
  EXPECT_NE(ftruncate((*ring)->fd(), 4096), 0);
  EXPECT_NE(ftruncate((*ring)->fd(), 2 << 20), 0);
  struct stat status;
  ASSERT_EQ(fstat((*ring)->fd(), &status), 0);
  EXPECT_GE(status.st_blocks * 512, (*ring)->size_bytes());
}

}  // namespace
}  // namespace stackd
