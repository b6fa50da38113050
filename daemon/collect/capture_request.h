// What a Collector is started with, and what a capture is asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/byte_budget.h"
#include "daemon/base/clock.h"
#include "daemon/capture/capture.h"
#include "daemon/process/file_locks.h"

namespace stackd {

// Where a process runs, from its host name and what its agent sent of its environment (STACKD_PLACE_VARIABLES).
using Locate =
    std::function<std::map<std::string, std::string, std::less<>>(std::string_view hostname, std::string_view variables)>;

struct CollectorOptions {
  std::string dir;                 // stackd.sock is made here
  uint32_t ring_bytes = 1u << 20;  // of each process
  uint32_t max_processes = 1024;   // more are refused, and counted
  Locate locate = {};              // empty: not known
  // What it may use of the daemon's memory; nullptr: as much as it likes. Outlives all that it captures.
  MemoryBudgets* budgets = nullptr;
  AskFlock has_flock = {};  // empty: the daemon may look itself
};

// A later deadline is as good as this one, and sums with this one do not overflow.
inline constexpr int64_t kMaxCaptureNs = 3600 * kNsPerSecond;

struct CaptureRequest {
  Trigger trigger = Trigger::kRequest;
  int64_t deadline_ns = 0;  // CLOCK_MONOTONIC
  uint32_t max_stack_bytes = 256u << 10;
  int32_t only_tid = 0;  // only this thread; 0: all
  Quiet quiet = Quiet::kPrefer;
  // One of many that say where threads are: nothing of it is kept. Nothing of the program runs for it but the agent's
  // thread. So `quiet` is kOnly, and tasks are not asked where they wait.
  bool is_sample = false;
  std::optional<HangCapture> hang;  // with Trigger::kHang
  // With Trigger::kCrash: an exception that no code catches. Its id is made when it is captured.
  std::optional<CrashCapture> exception;
  // For ThreadCapture::unmoved_ns and absent_ns, by tid.
  std::map<int32_t, ThreadPast> past;
};

// What a process asks for: a dump of itself.
struct OwnDumpRequest {
  std::string process_id;
  std::optional<CrashCapture> exception;  // that no code catches, if that is why
};

// What the threads in `sleeping` wait for now, of locks that runtimes know; nullopt: not known by the deadline.
using LookAtLocks =
    std::function<std::optional<std::vector<ManagedWait>>(const std::vector<ThreadWait>& sleeping, int64_t deadline_ns)>;

}  // namespace stackd
