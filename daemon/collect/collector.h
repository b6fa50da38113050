// Agents register here; captures are made here.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/capture/capture.h"
#include "daemon/collect/capture_request.h"
#include "daemon/crashes/crash_handler.h"

namespace stackd {

// The rings of all connected processes, together.
struct RingUsage {
  int64_t agents = 0;
  int64_t capacity_bytes = 0;
  int64_t used_bytes = 0;  // by records that were not read yet, or are being written
};

// What changes all the time, as files that a process has passed tell it.
struct ProcessActivity {
  int32_t parent_pid = 0;              // 0: not known
  std::optional<int64_t> cpu_time_ns;  // of all its threads, in its life
};

// Thread-safe. Owns the agents' connections and a thread that serves them.
class Collector {
 public:
  // Fails with one sentence that says what to change in the folder or its path (served_dir.h), or in the size of the rings.
  static Result<std::unique_ptr<Collector>> Start(CollectorOptions options);
  ~Collector();

  // Connected processes, newest first.
  std::vector<ProcessDescription> Processes() const;

  // Copies the stacks of all threads; `process_id` as in ProcessDescription::id. One capture at a time per process; the
  // next waits. Threads that did not answer by the deadline are in the result, with a status; so is a process that ends
  // meanwhile (partial). Fails with kNotFound only if the process is not connected, kDeadlineExceeded if it was busy until
  // then.
  Result<std::shared_ptr<Capture>> CaptureProcess(const std::string& process_id, const CaptureRequest& request);
  // A capture without threads: what is mapped, and the memory. kUnavailable while what is mapped is not known.
  Result<std::shared_ptr<Capture>> Outline(const std::string& process_id) const;
  // Looks whether threads of `capture` that wait in cycles for locks of runtimes wait still, half a second at most. Waits
  // of those that do not, or of which that is not clear, have no owner then. Likewise where every thread waits on a futex.
  void ConfirmWaits(const std::string& process_id, const LookAtLocks& look, int64_t deadline_ns, Capture* capture);
  // Calls `read` with the perf map of the process (symbolize/perf_map.h), if it passes a regular file as that. On a thread
  // that is given up at the deadline (false), so that `read` must own what it uses.
  bool ReadPerfMap(const std::string& process_id, int64_t deadline_ns, std::function<void(const Fd&)> read) const;
  // The process that asked for a dump of itself may go on, or end: what of it was to be read is read.
  void SayDumpIsRead(const std::string& process_id);

  // What follows is for noticing hangs, and costs the process's own threads nothing. All fail with kNotFound if the process
  // is not connected.

  // How often and how long each thread has run. kUnavailable where the kernel does not tell.
  Result<std::vector<ThreadSchedStat>> ReadSchedStats(const std::string& process_id) const;
  // What the process's threads sleep in; its helper looks. Waits for a capture that runs (kDeadlineExceeded) and ends for
  // one that begins (kAborted). kUnavailable: the process is stopped. kFailedPrecondition: it may not look, as its limits
  // say then.
  Result<std::vector<ThreadWait>> SampleWaits(const std::string& process_id, int64_t deadline_ns);
  // The futexes that these threads wait on, at most 4,096; what cannot be read is missing. kUnavailable if no memory can be
  // read, or not within 100 ms.
  Result<std::vector<FutexWord>> ReadFutexes(const std::string& process_id, std::span<const FutexWait> waits) const;
  // What these fds are, by number. One that the process did not name by the deadline has no name.
  Result<std::vector<WaitedFd>> DescribeFds(const std::string& process_id, std::span<const int32_t> fds,
                                            int64_t deadline_ns) const;
  // Whether it was told to end. Takes up to 100 ms where the kernel holds up readers of its memory.
  Result<SigtermSigns> ReadSigtermSigns(const std::string& process_id) const;
  // The heartbeats that are registered now.
  Result<std::vector<Heartbeat>> Heartbeats(const std::string& process_id) const;
  // 'R', 'S', 'D', 'T', ...; 0: not known. `tid` 0: the process.
  char StateOf(const std::string& process_id, int32_t tid) const;
  // Numbers that change when a thread of the process has run for long enough; empty: not known. Whether it is frozen
  // shows there: the process takes no part.
  std::vector<int64_t> ReadProcessSchedStats(const std::string& process_id) const;
  // Reads two files; nothing is known of a process that is not connected.
  ProcessActivity ReadActivity(const std::string& process_id) const;

  // `handler` is called for each process that asks for a dump of itself: on threads of the collector, up to four at a time.
  // To be called once.
  void OnDumpRequest(std::function<void(const OwnDumpRequest&)> handler);

  // Has `handler` called on threads of the collector, up to five at a time. Other crashes wait for it: it should store and
  // leave the rest for later. Takes in the spool. To be called once; crashes wait for that, as long as processes do.
  void OnCrash(CrashHandler handler);

  // The daemon is told to end: what is not done in time is not to blame for that.
  void EndAttempts();

  // So many crashes wait, or one for so long, that their handler is to be quick.
  bool HurriesCrashes() const;

  RingUsage Rings() const;

  // What an operator must know: "the folder … belongs to uid 1000".
  std::vector<std::string> Problems() const;

  // Since start, by name: "ring_records", "ring_corrupt_records", "ring_dropped_no_slot", "agents_rejected", ...
  std::map<std::string, int64_t> Counters() const;

 private:
  struct State;
  explicit Collector(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace stackd
