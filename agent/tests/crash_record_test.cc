// Crash records, written as the handler would write them: what is in them, and what is left of one whose writer is killed.
extern "C" {
#include "agent/crash/crash_record.h"

#include "agent/maps/code_ranges.h"
}

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "daemon/ring/ring_reader.h"

namespace stackd {
namespace {

constexpr uint32_t kRingBytes = 128u << 10;

class Threads : public RingReader::Listener {
 public:
  void OnThread(ThreadRecord) override { count++; }
  void OnStatus(StatusRecord) override { others++; }
  void OnCrash(CrashRecord) override { others++; }
  void OnWait(WaitRecord) override { others++; }
  void OnSchedStats(SchedStatRecord) override { others++; }
  void OnCorrupt(const char*) override { others++; }
  int count = 0;
  int others = 0;
};

stackd_ring Attach(Ring* ring) {
  stackd_ring agent_ring;
  EXPECT_TRUE(stackd_ring_attach(&agent_ring, ring->header(), ring->size_bytes()));
  return agent_ring;
}

bool IsReady(const Ring& ring, uint32_t slot) { return (ring.header()->ready[slot / 64] >> (slot % 64) & 1) != 0; }

int ReadyCrashSlots(const Ring& ring, const stackd_ring& agent_ring) {
  int count = 0;
  for (uint32_t slot = agent_ring.live_slot_count; slot < agent_ring.slot_count; slot++) count += IsReady(ring, slot);
  return count;
}

class CrashRecordWriter : public testing::Test {
 protected:
  CrashRecordWriter() : ring_(std::move(*Ring::Create(kRingBytes))), agent_ring_(Attach(ring_.get())) {
    stackd_crash_record_init();
    stackd_crash_record_set_last_words(&words_);
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    EXPECT_GE(stackd_code_ranges_refresh(fd), 0);
    close(fd);
    getcontext(&context_);
    context_.uc_stack = {};
    context_.uc_mcontext.gregs[REG_ERR] = 6;
    context_.uc_mcontext.gregs[REG_TRAPNO] = 14;
    info_.si_code = SEGV_MAPERR;
    info_.si_addr = reinterpret_cast<void*>(0x1234);
  }

  uint32_t Write(int signal_number, uint32_t max_slots = 20, int maps_fd = -1) {
    stackd_fault fault{signal_number, STACKD_CRASH_HANDLED, &info_, &context_};
    uint32_t first_slot = STACKD_NO_SLOT;
    stackd_crash_record_write(&agent_ring_, max_slots, &fault, {maps_fd, false}, &first_slot);
    return first_slot;
  }

  const stackd_crash_record* RecordAt(uint32_t slot) {
    return static_cast<const stackd_crash_record*>(stackd_slot(&agent_ring_, slot));
  }

  stackd_last_words words_{};
  siginfo_t info_{};
  ucontext_t context_{};
  std::unique_ptr<Ring> ring_;
  stackd_ring agent_ring_;
};

TEST_F(CrashRecordWriter, SaysWhatTheKernelSaid) {
  int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  uint32_t slot = Write(SIGSEGV, 20, fd);
  close(fd);
  ASSERT_NE(slot, STACKD_NO_SLOT);
  EXPECT_GE(slot, agent_ring_.live_slot_count);
  EXPECT_FALSE(IsReady(*ring_, slot)) << "that is for the caller to do";
  const stackd_crash_record* record = RecordAt(slot);
  EXPECT_EQ(record->slot.kind, STACKD_RECORD_CRASH);
  EXPECT_EQ(record->flags, STACKD_CRASH_HANDLED);
  EXPECT_EQ(record->signal_number, SIGSEGV);
  EXPECT_EQ(record->signal_code, SEGV_MAPERR);
  EXPECT_EQ(record->fault_address, 0x1234u);
  EXPECT_EQ(record->trap_error, 6u);
  EXPECT_EQ(record->trap_number, 14u);
  EXPECT_EQ(record->tid, static_cast<uint32_t>(gettid()));
  auto here = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  EXPECT_TRUE(record->stack_start < here && here < record->stack_end);
  ASSERT_NE(record->slot.next, STACKD_NO_SLOT);
  const auto* thread = static_cast<const stackd_thread_record*>(stackd_slot(&agent_ring_, record->slot.next));
  EXPECT_EQ(thread->slot.kind, STACKD_RECORD_THREAD);
  EXPECT_EQ(thread->tid, record->tid);
  EXPECT_EQ(thread->regs[STACKD_REG_RIP], static_cast<uint64_t>(context_.uc_mcontext.gregs[REG_RIP]));
  EXPECT_GT(thread->stack_words, 100u);
}

TEST_F(CrashRecordWriter, OfASignalThatWasSentNamesTheSenderAndNoAddress) {
  info_ = {};
  info_.si_code = SI_TKILL;
  info_.si_pid = 4321;
  info_.si_uid = 77;
  const stackd_crash_record* record = RecordAt(Write(SIGABRT));
  EXPECT_EQ(record->flags, STACKD_CRASH_HANDLED | STACKD_CRASH_SENT);
  EXPECT_EQ(record->sender_pid, 4321);
  EXPECT_EQ(record->sender_uid, 77);
  EXPECT_EQ(record->fault_address | record->trap_error | record->trap_number, 0u);
}

TEST_F(CrashRecordWriter, NoTwoHaveTheSameId) {
  const stackd_crash_record* first = RecordAt(Write(SIGSEGV));
  const stackd_crash_record* second = RecordAt(Write(SIGSEGV));
  EXPECT_NE(first->id[0], second->id[0]);
}

TEST_F(CrashRecordWriter, KeepsTheLastWordsOfAnAbortAndOfNothingElse) {
  struct {
    uint32_t size = 4096;
    char text[4092] = "free(): invalid pointer\n";
  } message;
  const void* abort_message = &message;
  const char* name = "*N3foo3barE";
  const void* type[2] = {nullptr, name};
  const void* exception[1] = {type};
  const void* globals[1] = {exception};
  words_.abort_message = reinterpret_cast<uint64_t>(&abort_message);
  words_.exception_globals =
      static_cast<int64_t>(reinterpret_cast<uint64_t>(globals) - reinterpret_cast<uint64_t>(stackd_fs_base()));
  words_.has_exception_globals = true;
  stackd_crash_record_set_last_words(&words_);
  const stackd_crash_record* record = RecordAt(Write(SIGABRT));
  EXPECT_STREQ(record->abort_message, "free(): invalid pointer\n");
  EXPECT_STREQ(record->exception_type, "N3foo3barE");
  record = RecordAt(Write(SIGSEGV));
  EXPECT_STREQ(record->abort_message, "");
  EXPECT_STREQ(record->exception_type, "");

  memset(message.text, 'x', sizeof(message.text));
  globals[0] = reinterpret_cast<void*>(0x1000);  // nothing is there
  record = RecordAt(Write(SIGABRT));
  EXPECT_EQ(std::string(record->abort_message), std::string(STACKD_CRASH_TEXT_BYTES - 1, 'x'));
  EXPECT_STREQ(record->exception_type, "");
}

TEST_F(CrashRecordWriter, ATextThatEndsWithItsPageIsReadToItsEnd) {
  auto* pages = static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(pages + 4096, 4096, PROT_NONE);
  char* message = pages + 4096 - sizeof(uint32_t) - 5;
  memcpy(message + sizeof(uint32_t), "abcde", 5);  // no NUL
  words_.abort_message = reinterpret_cast<uint64_t>(&message);
  stackd_crash_record_set_last_words(&words_);
  EXPECT_STREQ(RecordAt(Write(SIGABRT))->abort_message, "abcde");
  munmap(pages, 8192);
}

TEST_F(CrashRecordWriter, WithoutASlotIsCountedAndNothingElse) {
  uint64_t dropped = ring_->header()->dropped[STACKD_DROP_CRASH];
  EXPECT_EQ(Write(SIGSEGV, 1), STACKD_NO_SLOT);
  EXPECT_EQ(ring_->header()->dropped[STACKD_DROP_CRASH], dropped + 1);
  EXPECT_EQ(stackd_ring_free_crash_slots(&agent_ring_), agent_ring_.slot_count - agent_ring_.live_slot_count);
}

// The ring as it would be if the writer were killed after each of its instructions.
TEST_F(CrashRecordWriter, AWriterKilledAtAnyInstructionLosesItsOwnRecordAtMost) {
  pid_t pid = fork();
  if (pid == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    asm volatile("int3");
    uint32_t first_slot = Write(SIGSEGV, 4);
    stackd_ring_writer writer{};
    writer.ring = &agent_ring_;
    writer.first_slot = first_slot;
    stackd_ring_commit(&writer);
    asm volatile("int3");
    _exit(0);
  }
  int status;
  waitpid(pid, &status, 0);
  int steps = 0;
  int with_record = 0;
  for (bool more = true; more; steps++) {
    ptrace(PTRACE_SINGLESTEP, pid, nullptr, nullptr);
    waitpid(pid, &status, 0);
    ASSERT_TRUE(WIFSTOPPED(status));
    siginfo_t info{};
    ptrace(PTRACE_GETSIGINFO, pid, nullptr, &info);
    more = info.si_code != SI_KERNEL;
    int ready = ReadyCrashSlots(*ring_, agent_ring_);
    ASSERT_LE(ready, 1);
    with_record += ready;
    uint32_t free = stackd_ring_free_crash_slots(&agent_ring_);
    ASSERT_GE(free, agent_ring_.slot_count - agent_ring_.live_slot_count - 4) << "it claimed more than it was allowed";
    if (steps % 64 != 0 && ready == 0) continue;
    auto copy = std::move(*Ring::Create(ring_->size_bytes()));
    memcpy(static_cast<void*>(copy->header()), ring_->header(), ring_->size_bytes());
    stackd_ring copied = Attach(copy.get());
    stackd_ring_writer live;
    ASSERT_NE(stackd_ring_begin(&live, &copied, STACKD_RECORD_THREAD, sizeof(stackd_thread_record), 1), nullptr);
    memset(static_cast<char*>(stackd_slot(&copied, live.first_slot)) + 8, 0, sizeof(stackd_thread_record) - 8);
    stackd_ring_commit(&live);
    stackd_ring_writer next;
    ASSERT_NE(stackd_ring_begin_crash(&next, &copied, STACKD_RECORD_CRASH, 64, 4), nullptr) << "the next crash has room";
    if (ready != 0) continue;
    Threads threads;
    RingReader(copy.get()).Drain(&threads);
    ASSERT_EQ(threads.count, 1) << steps;
    ASSERT_EQ(threads.others, 0) << "half of a record is seen after " << steps;
  }
  kill(pid, SIGKILL);
  waitpid(pid, &status, 0);
  EXPECT_GT(steps, 3000);
  EXPECT_GT(with_record, 0);
  EXPECT_LT(with_record, 100) << "committed only at the end";
}

}  // namespace
}  // namespace stackd
