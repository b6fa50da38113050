#include "daemon/store/raw_threads.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "daemon/store/packed_records.h"

namespace stackd {
namespace {

// ThreadRecord::flags
constexpr uint8_t kHasStack = 1, kTruncated = 2, kReadAsleep = 4, kIsAgent = 8;

// All records are the file format: no padding, no change without a new kVersion.
struct ThreadRecord {
  int32_t tid;
  uint8_t status;
  char kernel_state;
  uint8_t flags;
  uint8_t reserved;
  uint32_t name_bytes;
  uint32_t wait_channel_bytes;
  int64_t cpu_ns;
  int64_t pause_ns;
  uint64_t thread_self_avma;
  uint64_t registers[17];
  uint64_t stack_base_avma;
  uint32_t stack_words;       // covered, kept or not
  uint32_t stack_words_kept;  // of both parts
  uint64_t outer_base_avma;   // as in StackCopy
  uint32_t outer_words;
  uint32_t reserved_too;
};
static_assert(sizeof(ThreadRecord) == 16 + 3 * 8 + 17 * 8 + 32 && std::has_unique_object_representations_v<ThreadRecord>);

// What not every thread has is kept by the place of its thread in `threads`.
struct CallRecord {
  uint32_t thread;
  uint32_t number;
  uint32_t known_arguments;
  uint32_t reserved;
  uint64_t arguments[6];
};
static_assert(sizeof(CallRecord) == 16 + 6 * 8 && std::has_unique_object_representations_v<CallRecord>);

struct WaitedFdRecord {
  uint32_t thread;
  int32_t fd;
};
static_assert(sizeof(WaitedFdRecord) == 8 && std::has_unique_object_representations_v<WaitedFdRecord>);

// A time before the capture.
struct AgeRecord {
  uint32_t thread;
  uint32_t reserved;
  int64_t age_ns;
};
static_assert(sizeof(AgeRecord) == 16 && std::has_unique_object_representations_v<AgeRecord>);

void SerializeWaits(const std::vector<ThreadCapture>& threads, store::RawCapture* raw) {
  for (uint32_t i = 0; i < threads.size(); i++) {
    const ThreadCapture& thread = threads[i];
    if (thread.call) {
      CallRecord record{.thread = i,
                        .number = thread.call->number,
                        .known_arguments = thread.call->known_arguments,
                        .reserved = 0,
                        .arguments = {}};
      std::ranges::copy(thread.call->arguments, record.arguments);
      AppendRecord(record, raw->mutable_calls());
    }
    for (int32_t fd : thread.waited_fds) {
      const WaitedFdRecord record{i, fd};
      AppendRecord(record, raw->mutable_waited_fds());
    }
    if (thread.unmoved_ns >= 0) AppendRecord(AgeRecord{i, 0, thread.unmoved_ns}, raw->mutable_unmoved());
    if (thread.absent_ns >= 0) AppendRecord(AgeRecord{i, 0, thread.absent_ns}, raw->mutable_absent());
  }
}

// nullopt if the tables do not hold what `record` claims.
std::optional<StackCopy> ParseStack(const ThreadRecord& record, PackedRecords* masks_table, PackedRecords* words_table) {
  const uint64_t inner_masks = (uint64_t{record.stack_words} + 63) / 64;
  auto masks = masks_table->TakeWords(inner_masks + (uint64_t{record.outer_words} + 63) / 64);
  auto words = words_table->TakeWords(record.stack_words_kept);
  if (!masks || !words) return std::nullopt;
  uint64_t kept = 0;
  for (uint64_t mask : *masks) kept += std::popcount(mask);
  const int bits_of_last = record.stack_words % 64, outer_bits_of_last = record.outer_words % 64;
  if (bits_of_last != 0 && (*masks)[inner_masks - 1] >> bits_of_last != 0) return std::nullopt;
  if (outer_bits_of_last != 0 && masks->back() >> outer_bits_of_last != 0) return std::nullopt;
  if (kept != words->size()) return std::nullopt;
  return StackCopy(record.stack_base_avma, record.stack_words, std::move(*masks), std::move(*words), record.outer_base_avma,
                   record.outer_words);
}

// Calls `fill` with each record of a table and its thread. False if the table is cut or a thread is not there.
template <typename Record, typename Fill>
bool ForEachOfThreads(std::string_view bytes, std::vector<ThreadCapture>* threads, Fill fill) {
  PackedRecords records(bytes);
  while (!records.empty()) {
    const auto record = records.Take<Record>();
    if (!record || record->thread >= threads->size()) return false;
    fill(*record, &(*threads)[record->thread]);
  }
  return true;
}

// False if what the threads wait for is cut, or of threads that are not there.
bool ParseWaits(const store::RawCapture& raw, std::vector<ThreadCapture>* threads) {
  return ForEachOfThreads<CallRecord>(raw.calls(), threads,
                                      [](const CallRecord& record, ThreadCapture* thread) {
                                        SystemCall& call = thread->call.emplace();
                                        call.number = record.number;
                                        call.known_arguments = record.known_arguments;
                                        std::ranges::copy(record.arguments, call.arguments.begin());
                                      }) &&
         ForEachOfThreads<WaitedFdRecord>(
             raw.waited_fds(), threads,
             [](const WaitedFdRecord& record, ThreadCapture* thread) { thread->waited_fds.push_back(record.fd); }) &&
         ForEachOfThreads<AgeRecord>(
             raw.unmoved(), threads,
             [](const AgeRecord& record, ThreadCapture* thread) { thread->unmoved_ns = record.age_ns; }) &&
         ForEachOfThreads<AgeRecord>(raw.absent(), threads, [](const AgeRecord& record, ThreadCapture* thread) {
           thread->absent_ns = record.age_ns;
         });
}

}  // namespace

void SerializeThreads(const std::vector<ThreadCapture>& threads, store::RawCapture* raw) {
  size_t masks = 0, words = 0;
  for (const ThreadCapture& thread : threads) {
    masks += thread.stack.masks().size();
    words += thread.stack.words().size();
  }
  raw->mutable_threads()->reserve(threads.size() * sizeof(ThreadRecord));
  raw->mutable_stack_masks()->reserve(masks * sizeof(uint64_t));
  raw->mutable_stack_words()->reserve(words * sizeof(uint64_t));

  for (const ThreadCapture& thread : threads) {
    ThreadRecord record{};
    record.tid = thread.tid;
    record.status = static_cast<uint8_t>(thread.status);
    record.kernel_state = thread.kernel_state;
    record.flags = (thread.has_stack ? kHasStack : 0) | (thread.stack_truncated ? kTruncated : 0) |
                   (thread.read_asleep ? kReadAsleep : 0) | (thread.is_agent ? kIsAgent : 0);
    record.name_bytes = static_cast<uint32_t>(thread.name.size());
    record.wait_channel_bytes = static_cast<uint32_t>(thread.wait_channel.size());
    record.cpu_ns = thread.cpu_ns;
    record.pause_ns = thread.pause_ns;
    record.thread_self_avma = thread.thread_self_avma;
    static_assert(sizeof(record.registers) == sizeof(thread.registers.value));
    std::memcpy(record.registers, thread.registers.value.data(), sizeof(record.registers));
    record.stack_base_avma = thread.stack.base_avma();
    record.stack_words = thread.stack.word_count();
    record.outer_base_avma = thread.stack.outer_base_avma();
    record.outer_words = thread.stack.outer_word_count();
    record.stack_words_kept = static_cast<uint32_t>(thread.stack.words().size());
    AppendRecord(record, raw->mutable_threads());
    raw->mutable_thread_texts()->append(thread.name).append(thread.wait_channel);
    AppendRecords(std::span(thread.stack.masks()), raw->mutable_stack_masks());
    AppendRecords(std::span(thread.stack.words()), raw->mutable_stack_words());
  }
  SerializeWaits(threads, raw);
}

const char* ParseThreads(const store::RawCapture& raw, std::vector<ThreadCapture>* threads) {
  PackedRecords records(raw.threads()), texts(raw.thread_texts()), masks(raw.stack_masks()), words(raw.stack_words());
  threads->reserve(raw.threads().size() / sizeof(ThreadRecord));
  while (!records.empty()) {
    const auto record = records.Take<ThreadRecord>();
    if (!record) return "a thread is cut";
    if (record->status < static_cast<uint8_t>(ThreadStatus::kCaptured) ||
        record->status > static_cast<uint8_t>(ThreadStatus::kRunning)) {
      return "a thread has an unknown status";
    }
    const auto name = texts.TakeBytes(record->name_bytes);
    const auto wait_channel = texts.TakeBytes(record->wait_channel_bytes);
    auto stack = ParseStack(*record, &masks, &words);
    if (!name || !wait_channel || !stack) return "a thread's stack or name does not fit its length";
    ThreadCapture& thread = threads->emplace_back();
    thread.tid = record->tid;
    thread.name = *name;
    thread.status = static_cast<ThreadStatus>(record->status);
    thread.kernel_state = record->kernel_state;
    thread.wait_channel = *wait_channel;
    thread.cpu_ns = record->cpu_ns;
    thread.pause_ns = record->pause_ns;
    thread.thread_self_avma = record->thread_self_avma;
    thread.has_stack = record->flags & kHasStack;
    thread.stack_truncated = record->flags & kTruncated;
    thread.read_asleep = record->flags & kReadAsleep;
    thread.is_agent = record->flags & kIsAgent;
    std::memcpy(thread.registers.value.data(), record->registers, sizeof(record->registers));
    if (thread.read_asleep) thread.registers.known = KnownAsleep(thread.registers);
    thread.stack = std::move(*stack);
  }
  return ParseWaits(raw, threads) ? nullptr : "what its threads wait for is cut, or of threads that it does not have";
}

}  // namespace stackd
