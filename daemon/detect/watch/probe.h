// What the detector may ask of a process. Nothing here stops a thread of it or has one run, but for its helper.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/capture/capture.h"
#include "daemon/capture/waits.h"

namespace stackd {

// Threads that wait for each other in a cycle, or one for itself, as one capture shows them.
struct CycleInStacks {
  std::string explanation;
  std::vector<int32_t> tids;
  // It is not known which of them has the lock that others wait for: they are all threads of the process.
  bool owner_is_unknown = false;
};

// Goroutines of a process.
struct Goroutines {
  bool is_go = false;
  bool has_memory = false;  // the process lets it be read
  size_t count = 0;
  std::vector<uint64_t> stuck;  // ids, as in ManagedFacts
};

// As the members of Collector with these names: tests have processes that do not exist.
class ProcessProbe {
 public:
  virtual ~ProcessProbe() = default;
  virtual std::vector<ProcessDescription> Processes() = 0;
  virtual Result<std::vector<ThreadSchedStat>> ReadSchedStats(const std::string& process_id) = 0;
  virtual Result<std::vector<ThreadWait>> SampleWaits(const std::string& process_id, int64_t timeout_ns) = 0;
  virtual Result<std::vector<FutexWord>> ReadFutexes(const std::string& process_id, std::span<const FutexWait> waits) = 0;
  virtual Result<std::vector<WaitedFd>> DescribeFds(const std::string& process_id, std::span<const int32_t> fds,
                                                    int64_t timeout_ns) = 0;
  virtual Result<std::vector<Heartbeat>> Heartbeats(const std::string& process_id) = 0;
  virtual Result<SigtermSigns> ReadSigtermSigns(const std::string& process_id) = 0;
  virtual std::vector<int64_t> ReadProcessSchedStats(const std::string& process_id) = 0;
  virtual char StateOf(const std::string& process_id, int32_t tid) = 0;
  // Names of the functions on the thread's stack, innermost first; one that is not known is empty. The thread runs for it.
  virtual Result<std::vector<std::string>> FunctionsOf(const std::string& process_id, int32_t tid) = 0;
  // What the threads in `sleeping` wait for now, of locks that runtimes know (Java's, Python's).
  virtual Result<std::vector<ManagedWait>> ReadLockWaits(const std::string& process_id,
                                                         std::span<const ThreadWait> sleeping) = 0;
  // Goroutines that wait for locks which no other has. Costs the process nothing.
  virtual Result<Goroutines> ReadStuckGoroutines(const std::string& process_id) = 0;
  // A cycle without doubt, by all that a capture tells; nullopt: there is none. No thread runs for it.
  virtual Result<std::optional<CycleInStacks>> FindCycle(const std::string& process_id) = 0;
};

}  // namespace stackd
