// One dump from request to stored Dump: collect, store raw, unwind, symbolize, group, store, tell the watchers. A crash
// goes the same way, but its process is let go once the raw copy is stored.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/byte_budget.h"
#include "daemon/base/result.h"
#include "daemon/collect/collector.h"
#include "daemon/pipeline/pipeline_counters.h"
#include "daemon/store/dump_store.h"
#include "daemon/symbolize/symbolizer.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

class CrashBacklog;

// Thread-safe.
class Pipeline {
 public:
  // All must outlive the pipeline, and `dumps` what it gives: the memory for dumps; nullptr: there is no limit.
  // `file_dirs`: where Resymbolize looks for files of processes that are gone.
  Pipeline(Collector* collector, Symbolizer* symbolizer, DumpStore* store, std::vector<std::string> file_dirs = {},
           ByteBudget* dumps = nullptr);
  ~Pipeline();

  // Admission check. Asked once per call, and only by a call that starts work, not by those that share it. Its error is the
  // call's. Must be quick, and not call back.
  using MayBegin = std::function<Result<void>()>;

  // A new dump of the process, whole (view FULL), by `request.deadline_ns`. Calls that overlap for one process share one
  // dump, but that of a hang is its own. `stored` is false in a dump that the store did not take, and a note says why. So
  // it is in a sample, which is not for the store: it has no name, and no watcher is told. Fails as CaptureProcess does.
  Result<std::shared_ptr<const v1::Dump>> CreateDump(const std::string& process_id, const CaptureRequest& request,
                                                     const MayBegin& may_begin = {});

  // Names of the functions that a thread is in, innermost first; one that is not known is empty. Nothing is stored, and
  // only that thread runs for it.
  Result<std::vector<std::string>> FunctionsOf(const std::string& process_id, int32_t tid, int64_t deadline_ns);

  // A deadlock that a capture of the whole process shows, without doubt; nullopt: none. Nothing is stored. Or a lock that
  // keeps no owner, and that no thread can have which does not wait itself: OWNER_UNKNOWN, with all threads of the program.
  Result<std::optional<v1::Finding>> FindDeadlock(const std::string& process_id, int64_t deadline_ns);

  // What the threads in `sleeping` wait for, of locks that runtimes know, without a capture.
  Result<std::vector<ManagedWait>> ReadLockWaits(const std::string& process_id, std::vector<ThreadWait> sleeping,
                                                 int64_t deadline_ns);

  // Goroutines, and which of them are stuck, without a capture.
  Result<ManagedFacts> ReadGoroutines(const std::string& process_id, int64_t deadline_ns);

  // A crash, as CrashHandler has it (collect). Stores it and calls `release`; the rest is done in the background. If the
  // store does not take it `release` is not called, and what comes of it is told but not stored. A crash that the store
  // knows is released and nothing else.
  void AddCrash(std::shared_ptr<Capture> capture, const std::function<void()>& release);
  // Finishes, in the background, the dumps that a daemon left behind whose stacks were stored and not unwound.
  void ResumeUnfinished();
  // Unwinds and names a stored dump anew, from its raw capture and with the files that are there now, and replaces it. What
  // it knew already stays. One dump at a time, for it has all of it in memory; calls that overlap for one dump share the
  // work. Fails with reason DUMP_NOT_FOUND or RAW_CAPTURE_GONE.
  Result<std::shared_ptr<const v1::Dump>> Resymbolize(const std::string& name, int64_t deadline_ns,
                                                      const MayBegin& may_begin = {});

  // `notice` is called before each capture that CreateDump makes, and gives `past` of its request.
  void BeforeCapture(std::function<std::map<int32_t, ThreadPast>(const std::string& process_id)> notice);

  // Calls `watcher` with every dump stored from now on, until the returned handle is destroyed.
  std::shared_ptr<void> Watch(std::function<void(std::shared_ptr<const v1::Dump>)> watcher);

  // Since start, by name: "dumps_request", "dumps_partial", "crashes_known", "stacks_unwound", "stacks_incomplete",
  // "frames_unnamed", ...
  std::map<std::string, int64_t> Counters() const;
  const PipelineMeasures& Measures() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::unique_ptr<CrashBacklog> backlog_;  // ends first
};

}  // namespace stackd
