// A capture of a process that has no agent, or whose agent is not asked: read by its pid.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/base/result.h"
#include "daemon/capture/capture.h"
#include "daemon/modules/module_cache.h"
#include "daemon/outside/live_process.h"
#include "daemon/outside/outside_waits.h"
#include "daemon/outside/thread_reader.h"
#include "daemon/process/memory_reader.h"

namespace stackd {

struct OutsideRequest {
  int64_t deadline_ns = 0;  // CLOCK_MONOTONIC
  uint32_t max_stack_bytes = 256u << 10;
  // Whether threads that run are stopped to be read, one at a time. Else they have no stack.
  bool may_stop = true;
};

// Reads one process. A program has one of these, as of ThreadReader.
class OutsideCapture {
 public:
  // Fails with one sentence that names what is in the way, and the way out. `proc` is "/proc".
  static Result<std::unique_ptr<OutsideCapture>> Open(const std::string& proc, int32_t pid);

  // Threads, what is mapped, and what threads wait for. What runtimes keep in memory is for others to read, with the
  // memory of the capture.
  Result<std::shared_ptr<Capture>> Read(const OutsideRequest& request);

  // Behind Read and the runtimes: see OutsideWaits.
  void ConfirmWaits(const OutsideWaits::LookAtLocks& look, int64_t deadline_ns, Capture* capture) const {
    waits_->Confirm(look, deadline_ns, capture);
  }

  // See LiveProcess.
  Fd OpenPerfMap() const { return process_->OpenPerfMap(); }

 private:
  explicit OutsideCapture(LiveProcess process);

  void LoadModules(int64_t deadline_ns, Capture* capture);
  void ReadThreads(const OutsideRequest& request, Capture* capture);

  const std::shared_ptr<const LiveProcess> process_;
  const std::shared_ptr<const MemoryReader> memory_;
  ModuleCache modules_;
  // Shared with what reads memory, which may be late.
  std::shared_ptr<ThreadReader> threads_;
  std::unique_ptr<OutsideWaits> waits_;
};

}  // namespace stackd
