// What one dump copied out of one process: the value that collect hands to the stages after it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/byte_budget.h"
#include "daemon/capture/managed.h"
#include "daemon/capture/managed_trace.h"
#include "daemon/capture/registers.h"
#include "daemon/capture/stack_copy.h"
#include "daemon/capture/waits.h"

namespace stackd {

// Numbers as in stackd.v1.Thread.Status.
enum class ThreadStatus : uint8_t {
  kCaptured = 1,
  kSignalBlocked = 2,
  kUninterruptible = 3,
  kStopped = 4,
  kExited = 5,
  kTimedOut = 6,
  kRingFull = 7,
  kSignalQueueFull = 8,
  kAgentFault = 9,
  kRunning = 10,
};

// Whether a dump may interrupt system calls. Numbers as in stackd_quiet (ring_abi.h), which says what they mean.
enum class Quiet : uint8_t { kNever = 0, kPrefer = 1, kOnly = 2 };

struct ThreadCapture {
  int32_t tid = 0;
  std::string name;
  ThreadStatus status = ThreadStatus::kTimedOut;
  char kernel_state = 0;     // as in /proc/PID/task/TID/stat; 0: not asked
  std::string wait_channel;  // of a thread that did not answer
  int64_t cpu_ns = 0;
  int64_t pause_ns = 0;
  uint64_t thread_self_avma = 0;
  bool has_stack = false;  // also true for a blocked thread whose stack the helper could read
  bool stack_truncated = false;
  bool is_agent = false;     // the agent's own thread
  bool read_asleep = false;  // by the helper: `registers` knows few
  Registers registers;
  StackCopy stack;
  std::optional<SystemCall> call;   // that it is in; nullopt: in none, or it is not known
  std::vector<int32_t> waited_fds;  // that it polls, reads, ...: see Capture::fds
  int64_t unmoved_ns = -1;          // time for which it had not run before the capture; -1: not known
  int64_t absent_ns = -1;           // so long before the capture it had not begun; -1: not known
  // As the agent wrote them; not stored: ManagedFacts say what they mean.
  std::vector<ManagedTrace> traces;
};

// What of its memory a process lets the daemon read (STACKD_SHARE). Numbers as in stackd_share (wire.h), in stored captures
// and in stackd.v1.Process.Share.
enum class Share : uint8_t { kNotSaid = 0, kStacks = 1, kNames = 2, kMemory = 3 };

// The process, as far as a dump must know it after it is gone.
struct ProcessDescription {
  std::string id;  // "1234-567890": the part behind "processes/"
  int32_t pid = 0;
  int32_t uid = 0;
  uint32_t abi_version = 0;
  std::string display_name;
  std::string executable;
  std::string argv0;
  std::string hostname;
  int64_t start_wall_ns = 0;
  int64_t connect_wall_ns = 0;
  int32_t thread_count = 0;
  Share share = Share::kNotSaid;
  std::vector<std::string> limits;
  // Where it runs, by the names of OpenTelemetry's resource attributes.
  std::map<std::string, std::string, std::less<>> resource_attributes;
};

// How a process died, as its agent recorded it (stackd_crash_record). Checked for form, not for truth.
struct CrashCapture {
  std::array<uint64_t, 2> id = {};  // of no other crash
  uint32_t flags = 0;               // stackd_crash_flags
  int32_t tid = 0;                  // the thread that crashed: one of Capture::threads
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
  std::string exception_type;  // mangled if it is one of C++
  bool from_spool = false;     // taken from a file, not from a process that was held
};

// The process lived when it was captured, and ends as its language has it, if at all.
inline bool IsUnhandledException(const CrashCapture& crash) {
  return crash.signal_number == 0 && !crash.exception_type.empty();
}

// Why the detector asked for a dump. Numbers as in stackd.v1.Hang.Cause.
enum class HangCause : uint8_t { kHeartbeatMissed = 1, kDeadlock = 2, kSpin = 3, kNoProgress = 4, kNotGone = 5 };

struct HangCapture {
  HangCause cause = HangCause::kNoProgress;
  std::string explanation;    // one sentence
  int32_t tid = 0;            // the thread concerned most; 0: none
  std::string heartbeat;      // its name
  int64_t duration_ns = 0;    // for which it had lasted
  std::string rule;           // that asked for the dump
  std::string loop_function;  // that the thread does not leave; empty unless it spins
};

enum class Trigger : uint8_t { kRequest = 1, kHang = 2, kCrash = 3, kSelf = 4 };

class AddressMap;
class MemoryReader;

struct Capture {
  ProcessDescription process;
  Trigger trigger = Trigger::kRequest;
  int64_t begin_wall_ns = 0;
  int64_t duration_ns = 0;
  bool partial = false;
  int32_t dump_signal = 0;
  std::vector<ThreadCapture> threads;  // by tid
  std::optional<CrashCapture> crash;   // with Trigger::kCrash
  std::optional<HangCapture> hang;     // with Trigger::kHang
  std::vector<FutexWord> futexes;      // that threads wait on, by address
  std::vector<WaitedFd> fds;           // that threads wait for, by number
  std::vector<FileLock> file_locks;    // that threads wait for, by fd and kind
  std::shared_ptr<const AddressMap> map;
  // Reads the process, as long as it lives; nullptr where it may not be read. Not stored.
  std::shared_ptr<const MemoryReader> memory;
  int64_t memory_read_bytes = 0;  // of its memory, by all readers, since the dump began
  // A stackd_task_table with its records, as the process wrote it; not stored: ManagedFacts say what it means.
  std::string task_table;
  ManagedFacts managed;
  // What is missing and why, one sentence each.
  std::vector<std::string> notes;
  // This capture's part of the memory for stacks; nullptr: none.
  std::shared_ptr<HeldBytes> held;
};

}  // namespace stackd
