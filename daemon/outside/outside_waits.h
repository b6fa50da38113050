// What the threads of a process wait for, read by its pid: futex words, owners of locks, fds, file locks. Also whether
// those that wait in a cycle wait still.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/capture/capture.h"
#include "daemon/outside/live_process.h"
#include "daemon/outside/thread_reader.h"
#include "daemon/process/confirm_waits.h"
#include "daemon/process/memory_reader.h"

namespace stackd {

class OutsideWaits {
 public:
  // All must outlive it.
  OutsideWaits(const LiveProcess* process, const MemoryReader* memory, const ThreadReader* threads)
      : process_(process), memory_(memory), threads_(threads) {}

  // Fills in what the threads of `capture` wait for, and takes the calls of those that made a cycle and have gone on.
  void Add(int64_t deadline_ns, Capture* capture) const;

  // What the threads in `sleeping` wait for now, of locks that runtimes know; nullopt: not known by the deadline.
  using LookAtLocks =
      std::function<std::optional<std::vector<ManagedWait>>(const std::vector<ThreadWait>& sleeping, int64_t deadline_ns)>;
  // Looks whether threads that wait in cycles for locks of runtimes wait still. Where every thread waits on a futex, looks
  // whether they did so at one moment. Takes half a second at most. process/README.md says why.
  void Confirm(const LookAtLocks& look, int64_t deadline_ns, Capture* capture) const;

 private:
  void AddFacts(int64_t deadline_ns, Capture* capture) const;
  void AddFileLocks(int64_t deadline_ns, Capture* capture) const;
  // Finds the processes that have locks in memory which they share with this one.
  void NameOwnersElsewhere(int64_t deadline_ns, Capture* capture) const;
  void ConfirmCycles(std::vector<ThreadCall> calls, const LookAtLocks& look, int64_t deadline_ns, Capture* capture) const;
  void DropWaitsThatEnded(Capture* capture) const;
  CycleProbe Probe(int64_t deadline_ns) const;
  bool IsStopped() const;

  const LiveProcess* const process_;
  const MemoryReader* const memory_;
  const ThreadReader* const threads_;
};

}  // namespace stackd
