// A reader for each runtime. It makes ManagedFacts of what the agent wrote of a thread, the process's memory and its files.
// It runs while the process lives (or is held in its crash), right after the capture. A crash out of the spool has no
// memory, and a reader does what it can without.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/capture/capture.h"
#include "daemon/process/process_files.h"

namespace stackd {

// Input of one capture. A reader may look at these parts of `capture`, which stay as they are: threads (tid, name, status,
// registers, stack, traces), map, crash, process.
struct RuntimeInput {
  const Capture& capture;
  const ProcessFiles* memory;  // nullptr: it cannot be read
  // A reader returns by then, with what it has.
  int64_t deadline_ns;
  // What runtimes said of their own end.
  std::span<const RuntimeReport> reports = {};
  // Only the frames of the captured threads are wanted: no tasks, no locks.
  bool frames_only = false;
};

// What ReadWaits gets: a process at any time, without a capture of its threads.
struct WaitInput {
  const Capture& capture;              // of it: process, map; threads, where one was made shortly before
  std::span<const ManagedWait> waits;  // of that one
  std::span<const ThreadWait> sleeping;
  const ProcessFiles& memory;
  int64_t deadline_ns;
};

// A reader keeps what it has learnt of files, by FileIdentity, bounded. Thread-safe. All that it reads is hostile, and
// moves while it reads, as the process runs on.
class RuntimeReader {
 public:
  virtual ~RuntimeReader() = default;

  // Adds to `facts`. Adds nothing if the runtime is not in the process, which the mappings tell in microseconds.
  virtual void Read(const RuntimeInput& input, ManagedFacts* facts) = 0;

  // Adds goroutines as Read() does, and nothing else. `input` has a process without a capture of its threads.
  virtual void ReadGoroutines(const RuntimeInput& /*input*/, ManagedFacts* /*facts*/) {}

  // Adds the locks of the runtime that sleeping threads wait for now.
  virtual void ReadWaits(const WaitInput& /*input*/, std::vector<ManagedWait>* /*waits*/) {}
};

}  // namespace stackd
