// What threads of one process wait for: locks, fds, and who has them.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/capture/capture.h"
#include "daemon/collect/agent_process.h"
#include "daemon/collect/asked_waits.h"
#include "daemon/collect/capture_request.h"
#include "daemon/collect/process_modules.h"
#include "daemon/collect/thread_sampler.h"
#include "daemon/process/confirm_waits.h"
#include "daemon/process/file_locks.h"
#include "daemon/process/wait_facts.h"
#include "daemon/ring/ring.h"

namespace stackd {

// Reads memory, or asks the process where that may not be read (wait_reader.cc). Thread-safe; needs no turn.
class WaitReader {
 public:
  // All must outlive it.
  WaitReader(const AgentProcess* process, const Ring* ring, const ProcessModules* modules)
      : process_(process), ring_(ring), modules_(modules), asked_waits_(&process->questions(), &process->files()) {}

  // Fails with a sentence for the dump's notes.
  Result<WaitFacts> ReadFacts(RwlockLayout layout, std::vector<ThreadCall> calls, int64_t deadline_ns) const;
  // See Collector::ReadFutexes.
  Result<std::vector<FutexWord>> ReadFutexes(std::vector<FutexWait> waits) const;
  // See Collector::ReadSigtermSigns.
  Result<SigtermSigns> ReadSigtermSigns() const;

 private:
  std::optional<uint64_t> ReadSigtermCount() const;

  const AgentProcess* const process_;
  const Ring* const ring_;
  const ProcessModules* const modules_;
  const AskedWaits asked_waits_;
};

// Adds to a capture what its threads wait for, and takes out what they wait for no longer. Thread-safe; needs no turn.
class WaitCollector {
 public:
  // All must outlive it.
  WaitCollector(const AgentProcess* process, const WaitReader* reader, ThreadSampler* sampler, AskFlock has_flock)
      : process_(process), reader_(reader), sampler_(sampler), has_flock_(std::move(has_flock)) {}

  void AddWaits(int64_t deadline_ns, Capture* capture);
  // Confirms cycles that have locks of runtimes. See Collector::ConfirmWaits.
  void DropEndedCyclesOfRuntimes(const LookAtLocks& look, int64_t deadline_ns, Capture* capture);
  // Where every thread waits on a futex, takes the calls of threads that did so at different moments only. Else the dump
  // would say that no thread is left to act, in a process that is at work.
  void DropWaitsThatEnded(Capture* capture);

 private:
  void AddFacts(int64_t deadline_ns, Capture* capture);
  static void AddPolledFds(WaitFacts* facts, Capture* capture);
  void LookAtHolders(int64_t deadline_ns, Capture* capture);
  void AddFdNames(int64_t deadline_ns, Capture* capture);
  void AddFileLocks(int64_t deadline_ns, Capture* capture);

  // In confirm_cycles.cc.
  CycleProbe Probe(int64_t deadline_ns, bool gives_way) const;
  // Takes calls that make cycles of futexes from threads that have gone on, or of which that is not clear.
  void DropEndedCycles(std::vector<ThreadCall> calls, int64_t deadline_ns, Capture* capture);
  // Reads the locks of `capture` anew, while its threads sleep; locks of runtimes by `look`, if there is one.
  void Confirm(std::vector<ThreadCall> calls, const LookAtLocks& look, int64_t deadline_ns, Capture* capture);

  const AgentProcess* const process_;
  const WaitReader* const reader_;
  ThreadSampler* const sampler_;
  const AskFlock has_flock_;
};

}  // namespace stackd
