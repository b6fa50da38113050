#include "daemon/ring/record.h"

#include <string.h>

#include <algorithm>
#include <bit>
#include <tuple>

#include "daemon/base/text.h"
#include "daemon/ring/managed_record.h"

namespace stackd {
namespace {

constexpr uint32_t kMaxStackWords = kMaxStackBytes / 8;

int64_t ClockTime(uint64_t time_ns) { return static_cast<int64_t>(std::min<uint64_t>(time_ns, INT64_MAX)); }

// What follows the stack; nullopt if the payload does not hold what the header promises.
std::optional<std::span<const char>> ParseStack(std::span<const char> payload, ThreadRecord* record) {
  size_t available = payload.size() / 8;
  size_t at = 0;
  auto word_at = [&](size_t index) {
    uint64_t word;
    memcpy(&word, payload.data() + 8 * index, sizeof(word));
    return word;
  };
  auto take = [&](uint32_t stack_words) {
    for (uint32_t done = 0; done < stack_words; done += 64) {
      uint32_t covered = std::min<uint32_t>(64, stack_words - done);
      if (at >= available) return false;
      uint64_t mask = word_at(at++);
      if (covered < 64 && (mask >> covered) != 0) return false;
      size_t kept = static_cast<size_t>(std::popcount(mask));
      if (kept > available - at) return false;
      record->masks.push_back(mask);
      size_t before = record->words.size();
      record->words.resize(before + kept);
      if (kept > 0) memcpy(record->words.data() + before, payload.data() + 8 * at, 8 * kept);
      at += kept;
    }
    return true;
  };
  if (!take(record->stack_words) || !take(record->outer_words)) return std::nullopt;
  return payload.subspan(8 * at);
}

// `bytes` without the slot header of its first slot.
std::optional<ThreadRecord> ParseThreadBody(std::span<const char> bytes) {
  constexpr size_t kBodyBytes = sizeof(stackd_thread_record) - sizeof(stackd_slot_header);
  if (bytes.size() < kBodyBytes) return std::nullopt;
  stackd_thread_record raw{};
  memcpy(reinterpret_cast<char*>(&raw) + sizeof(raw.slot), bytes.data(), kBodyBytes);
  if (raw.stack_words > kMaxStackWords || raw.outer_words > kMaxStackWords) return std::nullopt;
  ThreadRecord record;
  record.seq = raw.seq;
  record.tid = raw.tid;
  record.flags = raw.flags;
  record.handler_ns = raw.handler_ns;
  record.time_ns = ClockTime(raw.time_ns);
  record.cpu_ns = ClockTime(raw.cpu_ns);
  record.thread_self_avma = raw.thread_self;
  record.name = FieldText(raw.name);
  memcpy(record.registers, raw.regs, sizeof(raw.regs));
  record.stack_base_avma = raw.stack_base;
  record.stack_words = raw.stack_words;
  record.outer_base_avma = raw.outer_base;
  record.outer_words = raw.outer_words;
  record.call = ParseCall(raw.syscall);
  const auto rest = ParseStack(bytes.subspan(kBodyBytes), &record);
  if (!rest || raw.managed_words > STACKD_MAX_MANAGED_WORDS || 8ull * raw.managed_words > rest->size()) return std::nullopt;
  record.managed = ParseManaged(rest->first(8ull * raw.managed_words));
  return record;
}

}  // namespace

std::optional<SystemCall> ParseCall(const stackd_syscall& raw) {
  if ((raw.known & STACKD_SYSCALL_KNOWN) == 0) return std::nullopt;
  SystemCall call{.number = raw.number, .known_arguments = raw.known & ((1u << STACKD_SYSCALL_ARGUMENTS) - 1)};
  static_assert(STACKD_SYSCALL_ARGUMENTS == std::tuple_size_v<decltype(call.arguments)>);
  for (int i = 0; i < STACKD_SYSCALL_ARGUMENTS; i++) {
    if (call.knows(i)) call.arguments[static_cast<size_t>(i)] = raw.arguments[i];
  }
  return call;
}

char StateLetter(char state) { return (state | 0x20) >= 'a' && (state | 0x20) <= 'z' ? state : '\0'; }

std::optional<ThreadRecord> ParseThread(std::span<const char> chain) {
  return ParseThreadBody(chain.subspan(sizeof(stackd_slot_header)));
}

std::optional<CrashRecord> ParseCrash(std::span<const char> chain) {
  stackd_crash_record raw;
  memcpy(&raw, chain.data(), sizeof(raw));
  if (raw.slot.kind != STACKD_RECORD_CRASH) return std::nullopt;
  CrashRecord record;
  memcpy(record.id, raw.id, sizeof(record.id));
  record.time_ns = ClockTime(raw.time_ns);
  record.flags = raw.flags;
  record.tid = raw.tid;
  record.signal_number = raw.signal_number;
  record.signal_code = raw.signal_code;
  record.fault_address_avma = raw.fault_address;
  record.sender_pid = raw.sender_pid;
  record.sender_uid = raw.sender_uid;
  record.trap_error = raw.trap_error;
  record.trap_number = raw.trap_number;
  record.stack_start_avma = raw.stack_start;
  record.stack_end_avma = raw.stack_end;
  record.abort_message = FieldText(raw.abort_message);
  record.exception_type = FieldText(raw.exception_type);
  record.thread = ParseThreadBody(chain.subspan(STACKD_SLOT_BYTES));
  return record;
}

std::optional<std::vector<std::optional<StatusRecord>>> ParseStatuses(std::span<const char> chain) {
  stackd_status_record raw;
  memcpy(&raw, chain.data(), sizeof(raw));
  if (raw.entry_count > STACKD_STATUS_ENTRIES) return std::nullopt;
  std::vector<std::optional<StatusRecord>> records;
  for (uint32_t i = 0; i < raw.entry_count; i++) {
    const stackd_thread_status_entry& entry = raw.entries[i];
    bool known = entry.status >= STACKD_STATUS_SIGNAL_BLOCKED && entry.status <= STACKD_STATUS_RUNNING;
    records.emplace_back();
    if (!known) continue;
    records.back() = StatusRecord{.seq = raw.seq,
                                  .tid = entry.tid,
                                  .status = entry.status,
                                  .kernel_state = StateLetter(entry.state),
                                  .name = FieldText(entry.name),
                                  .wait_channel = FieldText(entry.wait_channel)};
  }
  return records;
}

std::optional<std::vector<WaitRecord>> ParseWaits(std::span<const char> chain) {
  stackd_wait_record raw;
  memcpy(&raw, chain.data(), sizeof(raw));
  if (raw.entry_count > STACKD_WAIT_ENTRIES) return std::nullopt;
  std::vector<WaitRecord> records;
  records.reserve(raw.entry_count);
  for (uint32_t i = 0; i < raw.entry_count; i++) {
    const stackd_wait_entry& entry = raw.entries[i];
    records.push_back(
        {.seq = raw.seq, .tid = entry.tid, .rsp_avma = entry.rsp, .rip_avma = entry.rip, .call = ParseCall(entry.syscall)});
  }
  return records;
}

std::optional<std::vector<SchedStatRecord>> ParseSchedStats(std::span<const char> chain) {
  stackd_schedstat_record raw;
  memcpy(&raw, chain.data(), sizeof(raw));
  if (raw.entry_count > STACKD_SCHEDSTAT_ENTRIES) return std::nullopt;
  // A time that makes no sense must not become one before the start.
  constexpr uint64_t kMaxNs = INT64_MAX;
  std::vector<SchedStatRecord> records;
  records.reserve(raw.entry_count);
  for (uint32_t i = 0; i < raw.entry_count; i++) {
    const stackd_schedstat_entry& entry = raw.entries[i];
    records.push_back({.seq = raw.seq,
                       .tid = entry.tid,
                       .is_helper = entry.is_helper != 0,
                       .run_ns = static_cast<int64_t>(std::min(entry.run_ns, kMaxNs)),
                       .runnable_ns = static_cast<int64_t>(std::min(entry.runnable_ns, kMaxNs)),
                       .run_count = entry.run_count});
  }
  return records;
}

}  // namespace stackd
