// Finds the runtimes of a captured process and asks the reader of each.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/capture/capture.h"
#include "daemon/managed/runtime_reader.h"

namespace stackd {

// Thread-safe.
class ManagedReader {
 public:
  // Has a reader for each runtime that stackd knows.
  ManagedReader();
  ~ManagedReader();

  // Fills in `capture->managed`, out of its reports and its threads' traces, and drops these unless a late reader still
  // needs them. If memory cannot be read by `deadline_ns`, there is only what the agent wrote, and a note. `frames_only`:
  // no tasks and no locks.
  void Read(int64_t deadline_ns, const std::shared_ptr<Capture>& capture, bool frames_only = false) const;

  // What threads in `sleeping` wait for now, of those that waited for locks of runtimes when `capture` was read. nullopt:
  // the deadline came first, or the memory cannot be read.
  std::optional<std::vector<ManagedWait>> ReadWaits(const std::shared_ptr<const Capture>& capture,
                                                    std::vector<ThreadWait> sleeping, int64_t deadline_ns) const;

  // Reads goroutines of a process without a capture of its threads. Without memory there is only the runtime, which says
  // so. nullopt: the deadline came first.
  std::optional<ManagedFacts> ReadGoroutines(const std::shared_ptr<const Capture>& outline, int64_t deadline_ns) const;

 private:
  std::shared_ptr<const std::vector<std::unique_ptr<RuntimeReader>>> readers_;
};

}  // namespace stackd
