// The records of ring_abi.h, checked: sizes agree with each other, strings are valid UTF-8. Addresses are as the process
// wrote them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/capture/managed_trace.h"
#include "daemon/capture/system_call.h"
#include "stackd/ring_abi.h"

namespace stackd {

// A record with more of a stack is corrupt.
inline constexpr uint32_t kMaxStackBytes = 256u << 10;

struct ThreadRecord {
  uint32_t seq = 0;
  uint32_t tid = 0;
  uint32_t flags = 0;  // stackd_thread_flags
  int64_t handler_ns = 0;
  int64_t time_ns = 0;
  int64_t cpu_ns = 0;
  uint64_t thread_self_avma = 0;
  std::string name;
  uint64_t registers[STACKD_REGISTERS] = {};
  uint64_t stack_base_avma = 0;
  uint32_t stack_words = 0;
  // The thread's own stack where rsp was on another, or the outermost end of a deep one; 0 words: none.
  uint64_t outer_base_avma = 0;
  uint32_t outer_words = 0;
  // As StackCopy takes them: of both.
  std::vector<uint64_t> masks;
  std::vector<uint64_t> words;
  std::optional<SystemCall> call;  // nullopt: in none, or it is not known
  std::vector<ManagedTrace> managed;
};

// One entry of a STATUS record.
struct StatusRecord {
  uint32_t seq = 0;
  uint32_t tid = 0;
  uint8_t status = 0;  // one of stackd_thread_status
  char kernel_state = 0;
  std::string name;
  std::string wait_channel;
};

// One entry of a WAIT record.
struct WaitRecord {
  uint32_t seq = 0;
  uint32_t tid = 0;
  uint64_t rsp_avma = 0;
  uint64_t rip_avma = 0;
  std::optional<SystemCall> call;  // nullopt: in a page fault or in none
};

// One entry of a SCHEDSTAT record.
struct SchedStatRecord {
  uint32_t seq = 0;
  uint32_t tid = 0;
  bool is_helper = false;
  int64_t run_ns = 0;
  int64_t runnable_ns = 0;
  uint64_t run_count = 0;
};

struct CrashRecord {
  uint64_t id[2] = {};
  int64_t time_ns = 0;
  uint32_t flags = 0;  // stackd_crash_flags
  uint32_t tid = 0;
  int32_t signal_number = 0;
  int32_t signal_code = 0;
  uint64_t fault_address_avma = 0;
  int32_t sender_pid = 0;
  int32_t sender_uid = 0;
  uint64_t trap_error = 0;
  uint64_t trap_number = 0;
  uint64_t stack_start_avma = 0;
  uint64_t stack_end_avma = 0;
  std::string abort_message;
  std::string exception_type;
  // Record of the thread `tid`; nullopt if it makes no sense: the rest of the crash is kept all the same.
  std::optional<ThreadRecord> thread;
};

// Returns the state of a thread as the process wrote it, if it is a letter, as in procfs; else 0. It is shown as it is.
char StateLetter(char state);

// nullopt: in none, or it is not known.
std::optional<SystemCall> ParseCall(const stackd_syscall& raw);

// A chain of slots is one piece of memory here: the slots in the order of the chain, with the first one's header only. Each
// parser takes a whole chain of at least one slot.
std::optional<ThreadRecord> ParseThread(std::span<const char> chain);
std::optional<CrashRecord> ParseCrash(std::span<const char> chain);
// nullopt in the place of an entry that makes no sense; nullopt altogether if there cannot be so many.
std::optional<std::vector<std::optional<StatusRecord>>> ParseStatuses(std::span<const char> chain);
// nullopt if there cannot be so many.
std::optional<std::vector<WaitRecord>> ParseWaits(std::span<const char> chain);
std::optional<std::vector<SchedStatRecord>> ParseSchedStats(std::span<const char> chain);

}  // namespace stackd
