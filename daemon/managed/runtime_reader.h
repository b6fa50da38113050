// A reader for each runtime: what the agent wrote of a thread, what lies in the process's memory and what its files say
// becomes ManagedFacts. It runs while the process lives (or is held in its crash), right behind the capture; of a crash out
// of the spool there is no memory, and a reader does what it can without.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/capture/capture.h"
#include "daemon/process/process_files.h"

namespace stackd {

// Of one capture. What a reader may look at stays as it is while it looks: of `capture` threads (tid, name, status,
// registers, stack, traces), map, crash, process.
struct RuntimeInput {
  const Capture& capture;
  const ProcessFiles* memory;  // nullptr: it cannot be read
  // By then a reader has returned, with what it has.
  int64_t deadline_ns;
  // What runtimes said of their own end.
  std::span<const RuntimeReport> reports = {};
  // Wanted are the frames of the threads captured: no tasks, no locks.
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

  // Adds to `facts`. Nothing where the runtime is not in the process: found out by what is mapped, at a cost of
  // microseconds.
  virtual void Read(const RuntimeInput& input, ManagedFacts* facts) = 0;

  // Adds what the threads that sleep wait for now, of its locks.
  virtual void ReadWaits(const WaitInput& /*input*/, std::vector<ManagedWait>* /*waits*/) {}
};

}  // namespace stackd
