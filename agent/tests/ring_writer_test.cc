// The agent's ring writer against the daemon's reader: many writers at once, and writers that are stopped or killed at any
// instruction.
extern "C" {
#include "agent/ring/ring_writer.h"
}

#include <gtest/gtest.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <set>
#include <thread>
#include <vector>

#include "daemon/ring/ring_reader.h"

namespace stackd {
namespace {

constexpr uint32_t kSmallRingBytes = 64u << 10;

stackd_ring Attach(Ring* ring) {
  stackd_ring agent_ring;
  EXPECT_TRUE(stackd_ring_attach(&agent_ring, ring->header(), ring->size_bytes()));
  return agent_ring;
}

// One THREAD record of `blocks` full blocks, each word `value`. False if there was no room.
bool Write(const stackd_ring* ring, uint32_t tid, uint64_t value, uint32_t blocks) {
  stackd_ring_writer writer;
  auto* record = static_cast<stackd_thread_record*>(
      stackd_ring_begin(&writer, ring, STACKD_RECORD_THREAD, sizeof(stackd_thread_record), tid));
  if (record == nullptr) return false;
  uint64_t block[65];
  block[0] = ~0ull;
  for (int i = 1; i < 65; i++) block[i] = value;
  for (uint32_t i = 0; i < blocks; i++) {
    if (!stackd_ring_append(&writer, block, 65)) {
      stackd_ring_abandon(&writer);
      return false;
    }
  }
  char* fixed = reinterpret_cast<char*>(record);
  memset(fixed + sizeof(stackd_slot_header), 0, sizeof(*record) - sizeof(stackd_slot_header));
  record->tid = tid;
  record->stack_base = value;
  record->stack_words = blocks * 64;
  record->outer_words = 0;
  record->payload_words = blocks * 65;
  stackd_ring_commit(&writer);
  return true;
}

class Collected : public RingReader::Listener {
 public:
  void OnThread(ThreadRecord record) override {
    records[record.tid].push_back(record.stack_base_avma);
    for (uint64_t word : record.words) {
      if (word != record.stack_base_avma) torn++;
    }
    words += record.words.size();
  }
  void OnStatus(StatusRecord) override { torn++; }
  void OnCrash(CrashRecord) override { torn++; }
  void OnWait(WaitRecord) override { torn++; }
  void OnSchedStats(SchedStatRecord) override { torn++; }
  void OnCorrupt(const char*) override { torn++; }

  std::map<uint32_t, std::vector<uint64_t>> records;
  int torn = 0;
  size_t words = 0;
};

Collected DrainAll(Ring* ring) {
  Collected collected;
  RingReader(ring).Drain(&collected);
  return collected;
}

TEST(RingWriter, UsesEverySlotOfLiveDumpsAndNoOther) {
  auto ring = std::move(*Ring::Create(kSmallRingBytes));
  stackd_ring agent_ring = Attach(ring.get());
  std::set<void*> slots;
  stackd_ring_writer writer;
  while (void* slot = stackd_ring_begin(&writer, &agent_ring, STACKD_RECORD_STATUS, 16, 5)) slots.insert(slot);
  EXPECT_EQ(slots.size(), agent_ring.live_slot_count);
  EXPECT_EQ(agent_ring.live_slot_count, ring->slot_count() - ring->header()->crash_slot_count);
  EXPECT_EQ(stackd_ring_free_slots(&agent_ring), 0u);
}

TEST(RingWriter, ARecordThatDoesNotFitGivesAllItsSlotsBack) {
  auto ring = std::move(*Ring::Create(kSmallRingBytes));
  stackd_ring agent_ring = Attach(ring.get());
  uint32_t before = stackd_ring_free_slots(&agent_ring);
  EXPECT_FALSE(Write(&agent_ring, 1, 0x1111, 1000));
  EXPECT_EQ(stackd_ring_free_slots(&agent_ring), before);
  EXPECT_TRUE(DrainAll(ring.get()).records.empty());
  EXPECT_TRUE(Write(&agent_ring, 1, 0x1111, 50));
}

TEST(RingWriter, RefusesMemoryThatIsNoRing) {
  auto ring = std::move(*Ring::Create(kSmallRingBytes));
  stackd_ring agent_ring;
  stackd_ring_header* header = ring->header();
  EXPECT_FALSE(stackd_ring_attach(&agent_ring, header, STACKD_HEADER_BYTES));
  EXPECT_FALSE(stackd_ring_attach(&agent_ring, header, ring->size_bytes() - 1));
  for (auto change :
       {+[](stackd_ring_header* h) { h->magic++; }, +[](stackd_ring_header* h) { h->abi_version++; },
        +[](stackd_ring_header* h) { h->slot_bytes = 64; }, +[](stackd_ring_header* h) { h->header_bytes = 64; },
        +[](stackd_ring_header* h) { h->slot_count = STACKD_MAX_SLOTS + 1; },
        +[](stackd_ring_header* h) { h->slot_count = 0; },
        +[](stackd_ring_header* h) { h->crash_slot_count = h->slot_count; }}) {
    stackd_ring_header good;
    memcpy(&good, header, sizeof(good));
    change(header);
    EXPECT_FALSE(stackd_ring_attach(&agent_ring, header, ring->size_bytes()));
    memcpy(header, &good, sizeof(good));
  }
  EXPECT_TRUE(stackd_ring_attach(&agent_ring, header, ring->size_bytes()));
}

TEST(RingWriter, FourWritersAndAReaderLoseNothingAndTearNothing) {
  auto ring = std::move(*Ring::Create(128u << 10));
  stackd_ring agent_ring = Attach(ring.get());
  constexpr uint32_t kRecords = 5000;
  std::vector<std::thread> writers;
  for (uint32_t tid = 1; tid <= 4; tid++) {
    writers.emplace_back([&agent_ring, tid] {
      for (uint32_t n = 0; n < kRecords;) {
        if (Write(&agent_ring, tid, uint64_t{tid} << 32 | n, (n * 7 + tid) % 9)) {
          n++;
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  Collected collected;
  RingReader reader(ring.get());
  size_t total = 0;
  while (total < 4 * kRecords) total += static_cast<size_t>(reader.Drain(&collected));
  for (auto& writer : writers) writer.join();
  EXPECT_EQ(collected.torn, 0);
  for (uint32_t tid = 1; tid <= 4; tid++) {
    std::set<uint64_t> seen(collected.records[tid].begin(), collected.records[tid].end());
    EXPECT_EQ(seen.size(), kRecords) << "each record once";
    EXPECT_EQ(collected.records[tid].size(), kRecords);
  }
  EXPECT_EQ(stackd_ring_free_slots(&agent_ring), agent_ring.live_slot_count) << "no slot was lost";
}

// A process that writes one record into the shared ring, one instruction at a time.
class SteppedWriter {
 public:
  SteppedWriter(const stackd_ring* ring, uint32_t tid, uint64_t value, uint32_t blocks) {
    pid_ = fork();
    if (pid_ == 0) {
      ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
      asm volatile("int3");
      bool written = Write(ring, tid, value, blocks);
      asm volatile("int3");
      _exit(written ? 0 : 1);
    }
    int status;
    waitpid(pid_, &status, 0);
    EXPECT_TRUE(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
  }

  ~SteppedWriter() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  // False once the record is written.
  bool Step() {
    ptrace(PTRACE_SINGLESTEP, pid_, nullptr, nullptr);
    return Stopped() != SI_KERNEL;
  }

  void Finish() {
    ptrace(PTRACE_CONT, pid_, nullptr, nullptr);
    EXPECT_EQ(Stopped(), SI_KERNEL);
  }

 private:
  // si_code: SI_KERNEL for int3, TRAP_TRACE for a step.
  int Stopped() {
    int status;
    waitpid(pid_, &status, 0);
    EXPECT_TRUE(WIFSTOPPED(status)) << status;
    siginfo_t info{};
    ptrace(PTRACE_GETSIGINFO, pid_, nullptr, &info);
    return info.si_code;
  }

  pid_t pid_;
};

// A second ring with the same contents: what a reader would find if the writer were killed now.
std::unique_ptr<Ring> CopyOf(const Ring& ring) {
  auto copy = std::move(*Ring::Create(ring.size_bytes()));
  memcpy(static_cast<void*>(copy->header()), ring.header(), ring.size_bytes());
  return copy;
}

TEST(RingWriter, AWriterKilledAtAnyInstructionCostsItsOwnRecordAtMost) {
  auto ring = std::move(*Ring::Create(kSmallRingBytes));
  stackd_ring agent_ring = Attach(ring.get());
  ASSERT_TRUE(Write(&agent_ring, 1, 0xaaaa, 9));
  ASSERT_TRUE(Write(&agent_ring, 2, 0xbbbb, 0));
  SteppedWriter writer(&agent_ring, 3, 0xcccc, 6);
  int instructions = 0;
  int with_record = 0;
  for (bool more = true; more; instructions++) {
    more = writer.Step();
    auto copy = CopyOf(*ring);
    Collected collected = DrainAll(copy.get());
    ASSERT_EQ(collected.torn, 0) << "after " << instructions;
    ASSERT_EQ(collected.records[1].size(), 1u) << "after " << instructions;
    ASSERT_EQ(collected.records[2].size(), 1u) << "after " << instructions;
    size_t third = collected.records[3].size();
    ASSERT_LE(third, 1u);
    ASSERT_EQ(collected.words, 64u * (9 + (third == 1 ? 6 : 0))) << "half a record after " << instructions;
    with_record += third == 1;
    // What the dead writer holds: 6 blocks and the fixed part are 3,336 bytes, in two slots.
    stackd_ring copied = Attach(copy.get());
    uint32_t lost = copied.live_slot_count - stackd_ring_free_slots(&copied);
    ASSERT_LE(lost, third == 1 ? 0u : 2u) << "after " << instructions;
    ASSERT_TRUE(Write(&copied, 4, 0xdddd, 3)) << "the ring goes on without it";
    ASSERT_EQ(DrainAll(copy.get()).records[4].size(), 1u);
  }
  EXPECT_GT(instructions, 500);
  EXPECT_GT(with_record, 0);
  EXPECT_LT(with_record, 100) << "committed only at the end";
}

TEST(RingWriter, AWriterKilledBySigkillLeavesTheRingInOrder) {
  auto ring = std::move(*Ring::Create(kSmallRingBytes));
  stackd_ring agent_ring = Attach(ring.get());
  for (int steps = 1; steps < 700; steps += 53) {
    {
      SteppedWriter writer(&agent_ring, 3, 0xcccc, 1);
      for (int i = 0; i < steps && writer.Step(); i++) continue;
    }
    ASSERT_TRUE(Write(&agent_ring, 4, 0xdddd, 3));
    Collected collected = DrainAll(ring.get());
    ASSERT_EQ(collected.torn, 0);
    ASSERT_EQ(collected.records[4].size(), 1u);
  }
  // One slot for each that was killed while it wrote, and no more.
  EXPECT_GE(stackd_ring_free_slots(&agent_ring) + 14, agent_ring.live_slot_count);
}

int InstructionsOfAShortRecord() {
  auto ring = std::move(*Ring::Create(kSmallRingBytes));
  stackd_ring agent_ring = Attach(ring.get());
  SteppedWriter writer(&agent_ring, 1, 0xaaaa, 0);
  int count = 0;
  while (writer.Step()) count++;
  return count;
}

// Every point of one writer at which another writer and the reader run to their end.
TEST(RingWriter, AnotherWriterAndTheReaderMayRunAtAnyInstruction) {
  int instructions = InstructionsOfAShortRecord();
  ASSERT_GT(instructions, 40);
  for (int at = 0; at <= instructions; at++) {
    for (bool reader_first : {false, true}) {
      auto ring = std::move(*Ring::Create(kSmallRingBytes));
      stackd_ring agent_ring = Attach(ring.get());
      Collected collected;
      RingReader reader(ring.get());
      SteppedWriter writer(&agent_ring, 1, 0xaaaa, 0);
      for (int i = 0; i < at && writer.Step(); i++) continue;
      if (reader_first) reader.Drain(&collected);
      ASSERT_TRUE(Write(&agent_ring, 2, 0xbbbb, 4));
      reader.Drain(&collected);
      if (at <= instructions - 1) writer.Finish();
      reader.Drain(&collected);
      ASSERT_EQ(collected.torn, 0) << at;
      ASSERT_EQ(collected.records[1].size(), 1u) << at;
      ASSERT_EQ(collected.records[2].size(), 1u) << at;
      ASSERT_EQ(stackd_ring_free_slots(&agent_ring), agent_ring.live_slot_count) << at;
    }
  }
}

// Two writers stopped at pairs of instructions, the reader between, then both to their end in either order.
TEST(RingWriter, TwoWritersMayMeetAtAnyPairOfInstructions) {
  int instructions = InstructionsOfAShortRecord();
  for (int first = 0; first < instructions; first += 11) {
    for (int second = first % 7; second < instructions; second += 13) {
      auto ring = std::move(*Ring::Create(kSmallRingBytes));
      stackd_ring agent_ring = Attach(ring.get());
      Collected collected;
      RingReader reader(ring.get());
      SteppedWriter a(&agent_ring, 1, 0xaaaa, 0);
      SteppedWriter b(&agent_ring, 1, 0xbbbb, 0);
      for (int i = 0; i < first; i++) a.Step();
      for (int i = 0; i < second; i++) b.Step();
      reader.Drain(&collected);
      (first + second) % 2 == 0 ? a.Finish() : b.Finish();
      reader.Drain(&collected);
      (first + second) % 2 == 0 ? b.Finish() : a.Finish();
      reader.Drain(&collected);
      ASSERT_EQ(collected.torn, 0) << first << " " << second;
      ASSERT_EQ(collected.records[1].size(), 2u) << first << " " << second;
      ASSERT_EQ(stackd_ring_free_slots(&agent_ring), agent_ring.live_slot_count) << first << " " << second;
    }
  }
}

}  // namespace
}  // namespace stackd
